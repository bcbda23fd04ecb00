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
    /// Sections below the result.
    pub sections: Vec<Section<'a>>,
}

/// A heading with its content; left out if that is empty.
#[derive(Debug)]
pub struct Section<'a> {
    pub heading: &'a str,
    pub content: Html,
}

/// A table, whose first column names its rows.
#[derive(Debug)]
pub struct Table<'a> {
    /// Title of the table, for screen readers and above it.
    pub caption: &'a str,
    pub header: &'a [&'a str],
    pub rows: Vec<Vec<Html>>,
    /// The last column has sentences instead of numbers.
    pub ends_in_words: bool,
}

// === impl Page ===

impl Page<'_> {
    /// The document.
    pub fn html(self) -> String {
        let head = Html::all([
            Html::empty("meta", &[("charset", "utf-8")]),
            Html::empty(
                "meta",
                &[
                    ("http-equiv", "Content-Security-Policy"),
                    ("content", POLICY),
                ],
            ),
            Html::empty(
                "meta",
                &[
                    ("name", "viewport"),
                    ("content", "width=device-width, initial-scale=1"),
                ],
            ),
            Html::empty(
                "meta",
                &[("name", "color-scheme"), ("content", "light dark")],
            ),
            Html::element("title", &[], [Html::text(&self.title)]),
            Html::style([STYLE, foretide_chart::STYLE]),
        ]);
        let header = Html::element(
            "header",
            &[],
            [
                Html::element("h1", &[], [Html::text(&self.title)]),
                Html::element("p", &[("class", "about")], [Html::text(&self.about)]),
            ],
        );
        let verdict = Html::element("div", &[("class", "verdict")], [self.verdict]);
        let sections = self
            .sections
            .into_iter()
            .filter(|it| !it.content.is_empty());
        let sections = sections.map(|section| {
            let heading = Html::element("h2", &[], [Html::text(section.heading)]);
            Html::element("section", &[], [heading, section.content])
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

// === impl Table ===

impl Table<'_> {
    /// The table, which can be scrolled where it is wider than the screen; empty without rows.
    pub fn html(self) -> Html {
        if self.rows.is_empty() {
            return Html::default();
        }
        let column = |name: &&str| Html::element("th", &[("scope", "col")], [Html::text(name)]);
        let header = Html::element("tr", &[], self.header.iter().map(column));
        let rows = self.rows.into_iter().map(|row| {
            let cells = row
                .into_iter()
                .enumerate()
                .map(|(index, cell)| match index {
                    0 => Html::element("th", &[("scope", "row")], [cell]),
                    _ => Html::element("td", &[], [cell]),
                });
            Html::element("tr", &[], cells)
        });
        let table = Html::element(
            "table",
            &[],
            [
                Html::element("caption", &[], [Html::text(self.caption)]),
                Html::element("thead", &[], [header]),
                Html::element("tbody", &[], rows),
            ],
        );
        let class = if self.ends_in_words {
            "table words"
        } else {
            "table"
        };
        // Focusable with the Tab key, because a keyboard scrolls only the element with the focus.
        let attributes = [
            ("class", class),
            ("role", "region"),
            ("aria-label", self.caption),
            ("tabindex", "0"),
        ];
        Html::element("div", &attributes, [table])
    }
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
