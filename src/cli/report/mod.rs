//! A report as one HTML file: no script, no network, for screens and paper, in light and dark.
//!
//! ```text
//! Page { title, lead, sections } --html--> <!doctype html>...
//! ```
//!
//! Numbers carry their exact value (`<data value>`), times their instant (`<time datetime>`).

use foretide_backtest::clock;
use jiff::Timestamp;

use crate::html::Html;

/// Style on the screen, without the style of charts.
const STYLE: &str = include_str!("report.css");
/// Widths of phones are used as they are.
const VIEWPORT: &str = "width=device-width, initial-scale=1";
/// A browser runs and loads nothing, whatever the file contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A report.
#[derive(Debug)]
pub struct Page<'a> {
    /// Subject of the report.
    pub title: String,
    /// Description under the title.
    pub about: String,
    /// The result, in a sentence or two.
    pub verdict: Html,
    /// Headings with their contents, below the result; those without content are left out.
    pub sections: Vec<(&'a str, Html)>,
}

// === impl Page ===

impl Page<'_> {
    /// The document.
    pub fn html(self) -> String {
        let meta: [&[_]; 4] = [
            &[("charset", "utf-8")],
            &[
                ("http-equiv", "Content-Security-Policy"),
                ("content", POLICY),
            ],
            &[("name", "viewport"), ("content", VIEWPORT)],
            &[("name", "color-scheme"), ("content", "light dark")],
        ];
        let meta = meta.map(|attributes| Html::empty("meta", attributes));
        let title = Html::element("title", &[], [Html::text(&self.title)]);
        let style = Html::style([STYLE, foretide_chart::STYLE]);
        let head = Html::all(meta.into_iter().chain([title, style]));
        let title = Html::element("h1", &[], [Html::text(&self.title)]);
        let about = Html::element("p", &[("class", "about")], [Html::text(&self.about)]);
        let header = Html::element("header", &[], [title, about]);
        let verdict = Html::element("div", &[("class", "verdict")], [self.verdict]);
        let sections = self.sections.into_iter().filter(|(_, it)| !it.is_empty());
        let sections = sections.map(|(heading, content)| {
            let heading = Html::element("h2", &[], [Html::text(heading)]);
            Html::element("section", &[], [heading, content])
        });
        let footer = format!(
            "Made by foretide {}. Times are UTC.",
            env!("CARGO_PKG_VERSION")
        );
        let main = [header, verdict].into_iter().chain(sections);
        let main = Html::element("main", &[], main);
        let footer = Html::element("footer", &[], [Html::text(&footer)]);
        Html::document(head, Html::all([main, footer]))
    }
}

/// A table of numbers, whose first column names its rows; the caption is its title, for screen readers too.
pub fn numbers(caption: &str, header: &[&str], rows: impl IntoIterator<Item = Vec<Html>>) -> Html {
    table("table", caption, header, rows)
}

/// A table like that of [`numbers`] whose last column has sentences.
pub fn words(caption: &str, header: &[&str], rows: impl IntoIterator<Item = Vec<Html>>) -> Html {
    table("table words", caption, header, rows)
}

/// The table, which can be scrolled where it is wider than the screen; empty without rows.
fn table(
    class: &str,
    caption: &str,
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<Html>>,
) -> Html {
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    if rows.is_empty() {
        return Html::default();
    }
    let column = |name: &&str| Html::element("th", &[("scope", "col")], [Html::text(name)]);
    let header = Html::element("tr", &[], header.iter().map(column));
    let parts = [
        Html::element("caption", &[], [Html::text(caption)]),
        Html::element("thead", &[], [header]),
        Html::element("tbody", &[], rows),
    ];
    // Focusable with the Tab key, because a keyboard scrolls only the element with the focus.
    let attributes = [
        ("class", class),
        ("role", "region"),
        ("aria-label", caption),
        ("tabindex", "0"),
    ];
    Html::element("div", &attributes, [Html::element("table", &[], parts)])
}

fn row(cells: Vec<Html>) -> Html {
    let cells = cells.into_iter().enumerate();
    let cells = cells.map(|(index, cell)| match index {
        0 => Html::element("th", &[("scope", "row")], [cell]),
        _ => Html::element("td", &[], [cell]),
    });
    Html::element("tr", &[], cells)
}

/// A drawing, which can be scrolled where it is wider than the screen.
pub fn figure(about: &str, drawn: Html) -> Html {
    Html::element(
        "figure",
        &[("tabindex", "0"), ("aria-label", about)],
        [drawn],
    )
}

/// A paragraph.
pub fn paragraph(text: &str) -> Html {
    Html::element("p", &[], [Html::text(text)])
}

/// A list; empty without items.
pub fn list<'a>(items: impl IntoIterator<Item = &'a String>) -> Html {
    let items: Vec<_> = items
        .into_iter()
        .map(|item| Html::element("li", &[], [Html::text(item)]))
        .collect();
    if items.is_empty() {
        return Html::default();
    }
    Html::element("ul", &[], items)
}

/// A number in the form `shown`, with its exact value.
pub fn number(value: f64, shown: &str) -> Html {
    // Formatted as in JSON, so that both are the same text.
    let value = serde_json::Value::from(value).to_string();
    Html::element("data", &[("value", &value)], [Html::text(shown)])
}

/// A count.
pub fn count(value: impl Into<u64>) -> Html {
    let value = value.into().to_string();
    Html::element("data", &[("value", &value)], [Html::text(&value)])
}

/// An instant to the minute.
pub fn time(at: Timestamp) -> Html {
    let shown = Html::text(&clock(at));
    Html::element("time", &[("datetime", &at.to_string())], [shown])
}

/// Text as it is written: a manifest.
pub fn listing(text: &str) -> Html {
    let code = Html::element("code", &[], [Html::text(text)]);
    let attributes = [
        ("tabindex", "0"),
        ("aria-label", "manifest"),
        ("role", "region"),
    ];
    Html::element("pre", &attributes, [code])
}
