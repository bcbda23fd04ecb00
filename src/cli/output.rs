//! The output of a command: its text and exit code, colors, tables, and the one writer to the shell.
//!
//! Commands are functions that return a [`CommandOutput`]; nothing else in the program prints.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

pub use foretide_backtest::API_VERSION;
use foretide_backtest::runs::RunError;
use serde::Serialize;

use foretide_base::{
    error::chain,
    exit::{Exit, print_error},
    printable,
};

/// The escape sequence that ends a color.
const UNPAINTED: &str = "\u{1b}[0m";

/// Columns of text that goes to a pipe or a file.
const DEFAULT_WIDTH: usize = 80;
/// Text in fewer columns than these is not readable.
const LEAST_WIDTH: usize = 20;
/// Lines longer than these are hard to follow.
const MOST_WIDTH: usize = 120;

/// Output of a command with its exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// For standard output.
    pub text: String,
    /// For standard error; empty for nothing.
    pub notes: String,
    /// The exit code.
    pub exit: Exit,
}

/// Failure of a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// Expected and found values, and advice.
    pub message: String,
}

/// `--output` of commands whose report has a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum OutputFormat {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

/// `--output` of commands whose report has charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ReportFormat {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// One row per minute
    Csv,
    /// The chart
    Svg,
    /// A page with everything, in one file
    Html,
}

/// `--output` of commands whose report is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum TextFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Capabilities of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Use color.
    pub color: bool,
    /// Draw with characters beyond ASCII.
    pub unicode: bool,
    /// Size of the terminal; `None` for a pipe or a file.
    pub size: Option<Size>,
}

/// Number of characters that fit on a screen, or on a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters across.
    pub columns: usize,
    /// Characters down.
    pub rows: usize,
}

/// Colors by their meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// The one thing to see first.
    Strong,
    /// Secondary text.
    Dim,
    /// Forecasts.
    Future,
    /// Healthy states.
    Good,
    /// Warnings.
    Warning,
    /// Errors.
    Error,
}

// === impl CommandOutput ===

impl CommandOutput {
    /// Text for standard output, with exit code 0.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// One JSON document of one of Foretide's own kinds; `body` must be an object.
    pub fn json(kind: &str, body: impl Serialize) -> Self {
        // A report has no maps whose keys are no text, so it can be written.
        let mut document = serde_json::to_value(body).unwrap_or_default();
        document["apiVersion"] = API_VERSION.into();
        document["kind"] = kind.into();
        Self::text(format!("{document:#}\n"))
    }
}

// === impl Failure ===

impl Failure {
    fn new(exit: Exit, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self { exit, message }
    }

    /// An invalid command line.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// An invalid file.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::new(Exit::Invalid, message)
    }

    /// An invalid command line, as an error says.
    pub fn in_flags(error: impl std::error::Error) -> Self {
        Self::usage(chain(&error))
    }

    /// An invalid file, as an error says.
    pub fn in_file(error: impl std::error::Error) -> Self {
        Self::invalid(chain(&error))
    }

    /// A failure outside of the program, as an error says.
    pub fn outside(error: impl std::error::Error) -> Self {
        Self::runtime(chain(&error))
    }

    /// A failure outside of the program, such as that of a connection.
    pub fn runtime(message: impl fmt::Display) -> Self {
        Self::new(Exit::Runtime, message)
    }
}

impl From<foretide_backtest::Error> for Failure {
    fn from(error: foretide_backtest::Error) -> Self {
        let message = chain(&error);
        if matches!(error, foretide_backtest::Error::Run(RunError::Stopped)) {
            Self::runtime(message)
        } else if error.is_about_options() {
            Self::usage(message)
        } else {
            Self::invalid(message)
        }
    }
}

// === impl Paint ===

impl Paint {
    /// All colors.
    const ALL: [Self; 6] = [
        Self::Strong,
        Self::Dim,
        Self::Future,
        Self::Good,
        Self::Warning,
        Self::Error,
    ];

    /// The escape sequence that begins the color.
    const fn sequence(self) -> &'static str {
        match self {
            Self::Strong => "\u{1b}[1m",
            Self::Dim => "\u{1b}[2m",
            Self::Future => "\u{1b}[36m",
            Self::Good => "\u{1b}[32m",
            Self::Warning => "\u{1b}[33m",
            Self::Error => "\u{1b}[31m",
        }
    }
}

// === impl Screen ===

impl Screen {
    /// The columns that text and pictures may fill: those of the terminal, up to a line length that is easy to read; 80
    /// in a pipe or a file.
    pub fn width(self) -> usize {
        self.size
            .map_or(DEFAULT_WIDTH, |size| size.columns)
            .clamp(LEAST_WIDTH, MOST_WIDTH)
    }

    /// The screen with ASCII only, if `ascii` asks for it.
    #[must_use]
    pub fn with_ascii(self, ascii: bool) -> Self {
        Self {
            unicode: self.unicode && !ascii,
            ..self
        }
    }

    /// `text` in a color, or as it is.
    pub fn paint(self, paint: Paint, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        format!("{}{text}{UNPAINTED}", paint.sequence())
    }

    /// The text made safe for printing: names and messages of objects may hold escape sequences.
    pub fn printable(self, text: &str) -> Cow<'_, str> {
        let mut colors = vec![UNPAINTED];
        colors.extend(Paint::ALL.map(Paint::sequence));
        printable::lines(text, if self.color { &colors } else { &[] })
    }

    /// Columns as wide as their widest cell, two blanks apart, the header dim; no blanks at line ends. A name after `>`
    /// is that of a column of numbers, aligned right. On a terminal that is narrower, each row is a block of lines.
    pub fn table<const N: usize>(
        self,
        header: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> String {
        let are_numbers = header.map(|name| name.starts_with('>'));
        let header = header.map(|name| name.trim_start_matches('>').to_owned());
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| row.map(|cell| printable::line(&cell).into_owned()))
            .collect();
        let mut widths = [0; N];
        for row in rows.iter().chain([&header]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let all = widths.iter().sum::<usize>() + 2 * N.saturating_sub(1);
        if self.size.is_some_and(|size| size.columns < all) {
            return self.blocks(&header, &rows);
        }
        let line = |cells: &[String; N]| {
            let columns = cells.iter().zip(widths).zip(are_numbers);
            let padded = columns.map(|((cell, width), is_number)| {
                if is_number {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                }
            });
            padded.collect::<String>().trim_end().to_owned()
        };
        let mut text = self.paint(Paint::Dim, &line(&header)) + "\n";
        text.extend(rows.iter().map(|row| line(row) + "\n"));
        text
    }

    /// One line per nonempty cell, with the name of its column, and a blank line between rows.
    fn blocks<const N: usize>(self, names: &[String; N], rows: &[[String; N]]) -> String {
        let width = names.iter().map(String::len).max().unwrap_or_default();
        rows.iter()
            .map(|row| {
                let cells = names.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
                let lines = cells.map(|(name, cell)| {
                    let name = self.paint(Paint::Dim, &format!("{name:<width$}"));
                    name + "  " + cell + "\n"
                });
                lines.collect::<String>()
            })
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The text in a color, wrapped to lines of the screen, those after the first indented, with a line break.
    pub fn line(self, paint: Option<Paint>, text: impl AsRef<str>) -> String {
        let line = wrapped(text.as_ref(), self.width(), "  ");
        paint.map_or_else(|| line.clone(), |paint| self.paint(paint, &line)) + "\n"
    }

    /// Text under a head line, wrapped and indented, with a line break.
    pub fn indented(self, text: &str) -> String {
        format!("  {}\n", wrapped(text, self.width() - 2, "  "))
    }

    /// The result in a sentence or two, with a line break.
    pub fn verdict(self, text: &str) -> String {
        self.paint(Paint::Strong, &wrapped(text, self.width(), "")) + "\n"
    }

    /// A name with its title, and a line about it.
    pub fn title(self, name: &str, title: &str, about: &str) -> String {
        let (name, about) = (
            self.paint(Paint::Strong, name),
            self.paint(Paint::Dim, about),
        );
        format!("{name}  {title}\n{about}\n")
    }

    /// Dim lines about assumptions.
    pub fn assumed(self, assumptions: &[String]) -> String {
        assumptions
            .iter()
            .map(|it| format!("assumed: {it}"))
            .map(|line| self.line(Some(Paint::Dim), line))
            .collect()
    }
}

/// Returns the columns that a painted text takes: its characters without the sequences of [`Paint`].
pub fn columns(text: &str) -> usize {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().chars().count();
    let rest = parts.map(|part| {
        part.split_once('m')
            .map_or(0, |(_, text)| text.chars().count())
    });
    first + rest.sum::<usize>()
}

/// Items one after the other, in as few lines of at most `width` columns as possible.
pub fn flowed(items: &[String], width: usize) -> String {
    let items = items.iter().map(|item| (item.as_str(), columns(item)));
    lines(items, "   ", width, "")
}

/// Text broken at blanks to lines of at most `width` characters, those after the first indented.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let words = text.split_whitespace();
    let words = words.map(|word| (word, word.chars().count()));
    lines(words, " ", width, indent)
}

/// Texts with their widths, in lines of at most `width` columns; lines after the first are indented.
fn lines<'a>(
    texts: impl Iterator<Item = (&'a str, usize)>,
    gap: &str,
    width: usize,
    indent: &str,
) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for (text, length) in texts {
        if used > 0 && used + gap.len() + length > width {
            lines.push('\n');
            lines.push_str(indent);
            used = indent.len();
        } else if used > 0 {
            lines.push_str(gap);
            used += gap.len();
        }
        lines.push_str(text);
        used += length;
    }
    lines
}

/// Prints an outcome and turns it into the exit code. Control characters are escaped, but for line breaks and, on a
/// screen with color, the sequences of [`Paint`].
///
/// A closed pipe (`foretide crds | head`) is not an error.
pub fn print(outcome: Result<CommandOutput, Failure>, screen: Screen) -> ExitCode {
    let output = match outcome {
        Ok(output) => output,
        Err(failure) => {
            print_error(&failure.message);
            return failure.exit.into();
        }
    };
    let printed = write(&mut io::stdout().lock(), &screen.printable(&output.text))
        .and_then(|()| write(&mut io::stderr().lock(), &screen.printable(&output.notes)));
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_error(&format!("cannot write the output: {error}"));
            Exit::Runtime.into()
        }
        Ok(()) | Err(_) => output.exit.into(),
    }
}

fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// The cell of an absent value.
pub fn dash() -> String {
    "-".to_owned()
}

/// The cell of a value that may be absent.
pub fn cell(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(dash, |value| value.to_string())
}

/// A number with at most two decimals.
pub fn decimal(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_table_aligns_words_left_and_numbers_right_and_ends_lines_without_blanks() {
        let header = ["NAME", ">N", "NOTE"];
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["a", "10", ""]), row(["longer", "5", "x"])];
        assert_eq!(
            Screen::default().table(header, rows),
            "NAME     N  NOTE\na       10\nlonger   5  x\n"
        );
    }

    #[test]
    fn color_is_used_only_where_the_screen_has_it() {
        let screen = Screen {
            color: true,
            ..Screen::default()
        };
        assert_eq!(screen.paint(Paint::Error, "no"), "\u{1b}[31mno\u{1b}[0m");
        assert_eq!(screen.paint(Paint::Error, ""), "");
        assert_eq!(Screen::default().paint(Paint::Error, "no"), "no");
    }

    #[test]
    fn what_is_printed_has_no_control_characters_but_line_breaks_and_own_colors() {
        let hostile = "\u{1b}]52;c;aGk=\u{7} \u{9b}2J \u{202e}";
        let color = Screen {
            color: true,
            ..Screen::default()
        };
        let shown = "\\u001b]52;c;aGk=\\u0007 \\u009b2J \\u202e";
        let text = format!("{}\n", color.paint(Paint::Warning, hostile));
        assert_eq!(
            color.printable(&text),
            format!("\u{1b}[33m{shown}\u{1b}[0m\n")
        );
        let plain = Screen::default();
        assert_eq!(
            plain.printable(&text),
            format!("\\u001b[33m{shown}\\u001b[0m\n")
        );
        let rows = [["a\nb".to_owned()]];
        assert_eq!(plain.table(["NAME"], rows), "NAME\na\\u000ab\n");
    }

    #[test]
    fn a_table_that_is_wider_than_the_terminal_becomes_blocks() {
        let header = ["NAME", ">N"];
        let rows = [["a", "10"], ["longer", ""]].map(|row| row.map(str::to_owned));
        let on = |columns| {
            let size = Some(Size { columns, rows: 24 });
            let screen = Screen {
                size,
                ..Screen::default()
            };
            screen.table(header, rows.clone())
        };
        assert_eq!(on(10), "NAME     N\na       10\nlonger\n");
        assert_eq!(on(9), "NAME  a\nN     10\n\nNAME  longer\n");
    }

    #[test]
    fn text_is_as_wide_as_the_terminal_up_to_a_readable_length() {
        let width = |columns| {
            let rows = 24;
            let size = Some(Size { columns, rows });
            Screen {
                size,
                ..Screen::default()
            }
            .width()
        };
        assert_eq!([7, 60, 100, 300].map(width), [20, 60, 100, 120]);
        assert_eq!(Screen::default().width(), 80);
    }

    #[test]
    fn painted_items_flow_by_the_columns_that_they_take() {
        let screen = Screen {
            color: true,
            ..Screen::default()
        };
        let items = ["one", "two", "three"].map(|item| screen.paint(Paint::Error, item));
        assert_eq!(items.each_ref().map(|item| columns(item)), [3, 3, 5]);
        let [one, two, three] = &items;
        assert_eq!(flowed(&items, 9), format!("{one}   {two}\n{three}"));
    }

    #[test]
    fn long_text_breaks_at_blanks() {
        assert_eq!(wrapped("one two three", 8, "  "), "one two\n  three");
        assert_eq!(wrapped("unbreakable", 4, ""), "unbreakable");
    }

    #[test]
    fn json_carries_its_version_and_kind_first() {
        let output = CommandOutput::json("Plan", json!({ "desired": 3 }));
        let read: Value = serde_json::from_str(&output.text).unwrap();
        let expected = json!({ "apiVersion": API_VERSION, "kind": "Plan", "desired": 3 });
        assert_eq!(read, expected);
    }
}
