//! The parts of an SVG document: its stylesheet, its frame, its legend, and numbers and text as XML.

use std::{
    borrow::Cow,
    fmt::{self, Display, Write as _},
};

use jiff::Timestamp;

use crate::role::{Role, colors, tones, with_roles};

/// The stylesheet of every picture, for a page that contains fragments.
///
/// A page chooses colors by the custom properties `--chart-ink`, `--chart-good` and `--chart-ROLE`. The fallbacks are
/// neither light nor dark: their contrast is at least 3 to 1 on white and on a dark ground, as the ground of a picture
/// is transparent, and people who see fewer colors can tell the roles apart. Lines differ in their dashes, too.
pub const STYLE: &str = concat!(
    "\
.chart text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:var(--chart-ink,#767e89)}\
.chart .title{font-size:16px;font-weight:600}.chart .name{font-size:15px;font-weight:600}\
.chart .strong{font-weight:700}.chart .headline{font-size:24px;font-weight:700}.chart .value,.chart .time{font-variant-numeric:tabular-nums}\
.chart .good{fill:var(--chart-good,#09a269)}.chart .bad{fill:var(--chart-short,#c5282d)}\
.chart .grid{fill:none;stroke:var(--chart-ink,#767e89);stroke-opacity:.25}\
.chart .plot{fill:none;pointer-events:all}\
.chart .future{fill:var(--chart-ink,#767e89);fill-opacity:.08}.chart .now{stroke:var(--chart-ink,#767e89)}",
    with_roles!(colors),
    "\
.chart .area{fill:currentColor;fill-opacity:.45;stroke:currentColor;stroke-width:.8}.chart .band{fill:currentColor;fill-opacity:.4;stroke:currentColor;stroke-width:.8}\
.chart .line,.chart .steps,.chart .rule{fill:none;stroke:currentColor;stroke-width:1.5;stroke-linejoin:round}\
.chart .desired.steps{stroke-width:2.2}.chart .rule.capacity{stroke-dasharray:none}\
.chart .shortage{fill:currentColor}.chart .tint{fill:currentColor;fill-opacity:.15}\
.chart .window{fill:currentColor;fill-opacity:.2}.chart .bar{fill:currentColor}.chart .soft{fill-opacity:.22;stroke:currentColor;stroke-width:.8}\
.chart .dot{fill:currentColor}"
);

/// The stylesheet of a page that is light or dark as its reader likes: the colors of all roles, and for whatever has the
/// class of a role the custom property `--tone`.
pub const TONES: &str = with_roles!(tones);

/// A picture that can be written.
#[derive(Debug)]
pub struct Drawing(pub(crate) Sheet);

/// A picture in the making: the elements so far, and the frame.
#[derive(Debug)]
pub struct Sheet {
    pub title: String,
    pub description: String,
    /// Attributes of the root for scripts, each with a space before it.
    pub attributes: String,
    pub width: f64,
    pub height: f64,
    /// The elements within the frame.
    pub body: String,
}

/// A line of a legend: the class of its sign, whether it is a line (else a square), and its text.
pub struct Sign<'a> {
    pub class: String,
    pub line: bool,
    pub text: Cow<'a, str>,
}

// === impl Sign ===

impl<'a> Sign<'a> {
    /// The sign of a mark of a role, which is drawn as a line if the mark is one.
    pub fn new(role: Role, mark: &str, text: impl Into<Cow<'a, str>>) -> Self {
        Self {
            class: role.class(mark),
            line: mark.starts_with("line") || mark.starts_with("steps") || mark.starts_with("rule"),
            text: text.into(),
        }
    }
}

/// A length in pixels, with one decimal at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length(pub(crate) f64);

/// Text of a user, as the content of an element or of an attribute.
pub struct Text<'a>(pub(crate) &'a str);

/// The distance of the left edge.
pub const LEFT: f64 = 12.0;
/// The distance of lines of text, and of things side by side.
pub const LINE: f64 = 20.0;
pub const GAP: f64 = 8.0;
/// Sizes of letters.
pub const SMALL: f64 = 13.0;
pub const NAME: f64 = 15.0;
const TITLE: f64 = 16.0;

// === impl Drawing ===

impl Drawing {
    /// The picture as a file that stands alone, readable on a light and on a dark ground.
    pub fn svg(&self) -> String {
        self.0
            .framed(&format!("<style>{}</style>\n", plain_style()))
    }

    /// The picture without styles, for a page whose stylesheet contains [`STYLE`].
    pub fn fragment(&self) -> String {
        self.0.framed("")
    }
}

// === impl Sheet ===

impl Sheet {
    /// A sheet with a title above what follows.
    pub fn new(title: &str, description: &str, width: u32) -> Self {
        let mut sheet = Self {
            title: title.to_owned(),
            description: description.to_owned(),
            attributes: String::new(),
            width: f64::from(width),
            height: 0.0,
            body: String::new(),
        };
        // Bold letters are wider than those that `width` is for.
        for line in lines(title, TITLE * 1.06, sheet.width - 2.0 * LEFT) {
            sheet.height += LINE;
            sheet.text("title", LEFT, sheet.height, &line);
        }
        if !title.is_empty() {
            sheet.height += 14.0;
        }
        sheet
    }

    fn framed(&self, style: &str) -> String {
        let (width, height) = (Length(self.width), Length(self.height));
        let (title, description) = (Text(&self.title), Text(&self.description));
        let description = match self.description.as_str() {
            "" => String::new(),
            _ => format!("<desc>{description}</desc>\n"),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\"{}><title>{title}</title>\n{description}{style}{}</svg>\n",
            self.attributes, self.body
        )
    }

    /// Adds an element in a line of its own.
    pub fn add(&mut self, element: fmt::Arguments<'_>) {
        let _infallible = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// Adds a path, unless it is empty.
    pub fn path(&mut self, class: &str, data: &str) {
        if !data.is_empty() {
            self.add(format_args!("<path class=\"{class}\" d=\"{data}\"/>"));
        }
    }

    /// Adds a text that begins at `x`; `class` may be followed by other attributes.
    pub fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        if !text.is_empty() {
            let class = Classes(class);
            let (x, y, text) = (Length(x), Length(y), Text(text));
            self.add(format_args!(
                "<text{class} x=\"{x}\" y=\"{y}\">{text}</text>"
            ));
        }
    }

    /// Adds a text around `x` (`middle`) or up to it (`end`).
    pub fn anchored(&mut self, class: &str, anchor: &str, (x, y): (f64, f64), text: &str) {
        let class = Classes(class);
        let (x, y, text) = (Length(x), Length(y), Text(text));
        self.add(format_args!(
            "<text{class} x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// Adds the signs and their texts, in as many lines as are needed, and the margin below.
    pub fn legend(&mut self, signs: &[Sign<'_>]) {
        let (mut x, mut base) = (LEFT, self.height + LINE);
        for sign in signs {
            let wide = LINE + width(&sign.text, SMALL);
            if x > LEFT && x + wide > self.width {
                (x, base) = (LEFT, base + LINE);
            }
            let (start, middle, low) = (Length(x), Length(base - 4.5), Length(base + 1.0));
            let data = if sign.line {
                format!("M{start} {middle}h16")
            } else {
                format!("M{start} {low}v-11h14v11Z")
            };
            self.path(&sign.class, &data);
            self.text("", x + LINE + 2.0, base, &sign.text);
            x += wide + LINE;
        }
        self.height = base + 12.0;
    }
}

/// The attribute `class`; nothing if the class is empty.
struct Classes<'a>(&'a str);

// === impl Classes ===

impl Display for Classes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            class => write!(f, " class=\"{class}\""),
        }
    }
}

// === impl Length ===

impl Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (self.0 * 10.0).round() / 10.0)
    }
}

// === impl Text ===

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                // XML has no way to write them.
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                    f.write_char('\u{fffd}')?;
                }
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// The approximate width of a text in pixels, by classes of letters that fonts share; letters that differ between fonts
/// leave some room.
pub fn width(text: &str, size: f64) -> f64 {
    let ems = text.chars().map(|c| match c {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | '!' => 0.27,
        'f' | 't' | 'r' | 'I' | ' ' | '-' | '/' | '(' | ')' => 0.38,
        'm' | 'w' | 'M' | 'W' | '%' => 0.92,
        'A'..='Z' => 0.7,
        c if c.is_ascii() => 0.61,
        _ => 1.0,
    });
    ems.sum::<f64>() * size * 1.03
}

/// A text in lines of at most this width; a longer word has a line for itself.
pub fn lines(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + size / 2.0 <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Seconds since the epoch, for attributes.
pub fn span_attributes((from, until): (Timestamp, Timestamp)) -> String {
    let (from, until) = (from.as_second(), until.as_second());
    format!(" data-from=\"{from}\" data-until=\"{until}\"")
}

/// The stylesheet of a file that stands alone: custom properties are replaced by their fallbacks, as not every viewer
/// of SVG knows them.
fn plain_style() -> String {
    let mut pieces = STYLE.split("var(");
    let start = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(start, |style, piece| {
        let (property, after) = piece.split_once(')').unwrap_or((piece, ""));
        let (_, fallback) = property.split_once(',').unwrap_or_default();
        style + fallback + after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUNDS: [&str; 3] = ["#ffffff", "#0d1117", "#000000"];
    /// The sight of people with all three receptors of color, and of those who lack one, after Machado, Oliveira and
    /// Fernandes (2009): each a linear map of linear red, green and blue.
    const EYES: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ];

    /// The color that a role falls back to.
    fn color(role: &str) -> &'static str {
        let (_, rest) = STYLE.split_once(&format!("--chart-{role},")).unwrap();
        rest.split_once(')').unwrap().0
    }

    /// Linear red, green and blue.
    fn linear(color: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let part = u8::from_str_radix(color.get(at..at + 2).unwrap(), 16).unwrap();
            let part = f64::from(part) / 255.0;
            if part <= 0.040_45 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn luminance([red, green, blue]: [f64; 3]) -> f64 {
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// The contrast of WCAG 2.
    fn contrast(left: &str, right: &str) -> f64 {
        let (left, right) = (luminance(linear(left)), luminance(linear(right)));
        (left.max(right) + 0.05) / (left.min(right) + 0.05)
    }

    /// A color as an eye sees it, in CIE L*a*b*.
    fn seen(color: &str, eye: [[f64; 3]; 3]) -> [f64; 3] {
        let rgb = linear(color);
        let dot = |row: [f64; 3]| row.iter().zip(rgb).map(|(a, b)| a * b).sum::<f64>();
        let [red, green, blue] = eye.map(|row| dot(row).clamp(0.0, 1.0));
        let root = |t: f64| {
            if t > 0.008_856 {
                t.cbrt()
            } else {
                7.787 * t + 16.0 / 116.0
            }
        };
        let x = root((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.950_47);
        let y = root(luminance([red, green, blue]));
        let z = root((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.088_83);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn every_color_is_visible_on_a_light_and_on_a_dark_ground() {
        let roles = Role::ALL.iter().map(|role| role.as_str());
        for name in roles.chain(["ink", "good"]) {
            for ground in GROUNDS {
                let contrast = contrast(color(name), ground);
                assert!(contrast >= 3.0, "{name} on {ground}: {contrast:.2}");
            }
        }
    }

    /// Bounds are gray as what was observed, and dashed.
    #[test]
    fn every_eye_can_tell_the_roles_apart() {
        let roles = Role::ALL.iter().filter(|role| **role != Role::Bounds);
        let roles: Vec<_> = roles.map(|role| role.as_str()).collect();
        for eye in EYES {
            for (index, left) in roles.iter().enumerate() {
                for right in roles.iter().skip(index + 1) {
                    let pair = seen(color(left), eye)
                        .into_iter()
                        .zip(seen(color(right), eye));
                    let distance = pair.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    assert!(distance > 25.0, "{left} and {right}: {distance:.1}");
                }
            }
        }
        assert!(STYLE.contains(".chart .bounds.rule{stroke-dasharray:10 5}"));
    }

    #[test]
    fn a_file_needs_no_custom_properties_and_a_page_no_styles() {
        let plain = plain_style();
        assert!(
            !plain.contains("var(") && plain.contains("{color:#1863fe}"),
            "{plain}"
        );
        let drawing = Drawing(Sheet::new("t", "", 100));
        assert!(drawing.svg().contains(&format!("<style>{plain}</style>")));
        assert!(!drawing.fragment().contains("style"));
    }
}
