//! The environment of a command: its terminal, its time zone and the present; and the times in flags.

use std::io::IsTerminal as _;

use foretide_backtest::validate::Validator;
use foretide_domain::cron::Zone;
use jiff::{Timestamp, civil::Date};

use super::output::{Screen, Size};
use crate::config;
use foretide_base::machine::Machine;

/// The terminal, the time zone, the instant and the machine that a command runs with.
#[derive(Clone, Debug)]
pub struct CommandContext {
    /// Capabilities of the terminal.
    pub screen: Screen,
    /// Zone for `timezone: Local`.
    pub local: Zone,
    /// The present.
    pub now: Timestamp,
    /// Machine that connections are opened on.
    pub machine: Machine,
}

/// Current step of a command that takes some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress<'a> {
    /// Reading the history of a metric, at the day that begins here.
    Reading(&'a str, Timestamp),
    /// Replaying the history; this fraction is done.
    Replaying(f64),
}

// === impl CommandContext ===

impl CommandContext {
    /// The validation of manifests, as on this machine now.
    pub fn validator(&self) -> Validator<'_> {
        Validator::new(&self.local, self.now)
    }

    /// The context of this process, which runs on a machine.
    pub fn detect(machine: &Machine) -> Self {
        Self {
            screen: screen(),
            local: config::system_zone(),
            now: machine.clock().now(),
            machine: machine.clone(),
        }
    }
}

/// Reads the time of a flag.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        // The usual mistake is a date without a time.
        let date = text.parse::<Date>().map(|date| date.to_string());
        let date = date.as_deref().unwrap_or("2026-03-08");
        format!(
            "expected a date, a time and a zone, such as {date}T09:00:00Z or {date}T09:00:00+01:00"
        )
    })
}

/// Capabilities of standard output, by `NO_COLOR`, `TERM` and the locale (`LC_ALL`, `LC_CTYPE`, `LANG`).
fn screen() -> Screen {
    let text = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let terminal = std::io::stdout().is_terminal();
    let is_dumb = text("TERM").is_some_and(|term| term == "dumb");
    let name = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(text);
    let locale = name.map(|name| name.to_string_lossy().to_lowercase());
    Screen {
        color: terminal && !is_dumb && text("NO_COLOR").is_none(),
        // A locale that is not set may be UTF-8.
        unicode: locale.is_none_or(|name| name.contains("utf-8") || name.contains("utf8")),
        size: terminal.then(terminal_size).flatten(),
    }
}

/// The size of the terminal of standard output; `None` if it reports none.
fn terminal_size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (columns > 0 && rows > 0).then_some(Size { columns, rows })
}
