//! HTML whose text is escaped by construction.
//!
//! Names of elements and attributes are written in the program; every text from outside becomes a text node or the
//! value of an attribute. The only other content are charts, whose renderer escapes in the same way.
//!
//! ```text
//! Html::element("td", &[("class", "short")], [Html::text("<b>")])  -->  <td class="short">&lt;b&gt;</td>
//! ```

use foretide_chart::Drawing;

use foretide_base::printable;

/// A part of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(String);

// === impl Html ===

impl Html {
    /// A text. Control characters but line breaks are shown by their codes.
    pub fn text(text: &str) -> Self {
        let mut html = String::with_capacity(text.len());
        escape(&mut html, text);
        Self(html)
    }

    /// An element with its content; neither `script` nor `style` can hold any.
    pub fn element(
        name: &'static str,
        attributes: &[(&'static str, &str)],
        content: impl IntoIterator<Item = Self>,
    ) -> Self {
        let mut html = start(name, attributes);
        for part in content {
            html.push_str(&part.0);
        }
        html.extend([format!("</{name}>")]);
        Self(html)
    }

    /// An element that cannot have content, such as `meta`.
    pub fn empty(name: &'static str, attributes: &[(&'static str, &str)]) -> Self {
        Self(start(name, attributes))
    }

    /// A chart, whose style is [`foretide_chart::STYLE`].
    pub fn drawing(drawing: &Drawing) -> Self {
        Self(drawing.fragment())
    }

    /// A stylesheet of the program.
    pub fn style(parts: [&'static str; 2]) -> Self {
        Self(format!("<style>{}</style>", parts.concat()))
    }

    /// Parts one after the other.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        Self(parts.into_iter().map(|part| part.0).collect())
    }

    /// Returns whether the content is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A whole document in English.
    pub fn document(head: Self, body: Self) -> String {
        let head = Self::element("head", &[], [head]);
        let body = Self::element("body", &[], [body]);
        let html = Self::element("html", &[("lang", "en")], [head, body]);
        format!("<!doctype html>\n{}\n", html.0)
    }
}

fn start(name: &'static str, attributes: &[(&'static str, &str)]) -> String {
    let mut html = format!("<{name}");
    for (attribute, value) in attributes {
        html.extend([format!(" {attribute}=\"")]);
        escape(&mut html, value);
        html.push('"');
    }
    html.push('>');
    html
}

fn escape(html: &mut String, text: &str) {
    for c in printable::lines(text, &[]).chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_and_values_are_escaped() {
        let hostile = "</td><script>alert(\"1\")</script>&'\u{202e}\u{7}";
        let escaped =
            "&lt;/td&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;\\u202e\\u0007";
        let html = Html::element("td", &[("title", hostile)], [Html::text(hostile)]);
        assert_eq!(
            html,
            Html(format!("<td title=\"{escaped}\">{escaped}</td>"))
        );
    }

    proptest! {
        #[test]
        fn no_text_ends_its_element_or_its_attribute(text in any::<String>()) {
            let html = Html::element("p", &[("title", &text)], [Html::text(&text)]);
            let inner = html.0.strip_prefix("<p title=\"").and_then(|it| it.strip_suffix("</p>")).unwrap();
            let (value, content) = inner.split_once("\">").unwrap();
            for part in [value, content] {
                prop_assert!(!part.contains(['<', '>', '"', '\'']), "{part}");
            }
        }
    }
}
