//! A progress bar on standard error, for commands that take seconds.

use std::io::{IsTerminal as _, Write as _};

use super::context::Progress;
use foretide_base::printable;

/// Width of a progress bar.
const BAR: u32 = 40;

/// Runs a command that reports its progress, which is shown where standard error is a terminal.
pub fn with_progress<T>(run: impl FnOnce(&mut dyn FnMut(Progress<'_>)) -> T) -> T {
    let shows = std::io::stderr().is_terminal();
    let mut drawn = String::new();
    let outcome = run(&mut |progress| {
        let line = if shows {
            shown(progress)
        } else {
            String::new()
        };
        if line != drawn {
            draw(&line);
            drawn = line;
        }
    });
    if !drawn.is_empty() {
        draw("\r\u{1b}[K");
    }
    outcome
}

/// Current step of a command, on one line.
fn shown(progress: Progress<'_>) -> String {
    match progress {
        Progress::Replaying(part) => bar(filled(part)),
        Progress::Reading(name, day) => {
            let name = printable::line(name);
            format!("\r\u{1b}[Kreading {name}: {}", day.strftime("%a %F"))
        }
    }
}

fn bar(filled: u32) -> String {
    let bar: String = (0..BAR)
        .map(|cell| if cell < filled { '#' } else { '.' })
        .collect();
    format!("\r\u{1b}[K[{bar}] {:>3} %", filled * 100 / BAR)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn filled(part: f64) -> u32 {
    ((part * f64::from(BAR)) as u32).min(BAR)
}

/// Draws a progress bar; a failure to draw is ignored.
fn draw(text: &str) {
    let mut to = std::io::stderr().lock();
    let _drawn = to
        .write_all(text.as_bytes())
        .and_then(|()| to.flush())
        .is_ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_that_is_read_is_shown_with_its_metric() {
        let day = "2026-03-02T12:00:00Z".parse().unwrap();
        let line = shown(Progress::Reading("resource.cpu", day));
        assert_eq!(line, "\r\u{1b}[Kreading resource.cpu: Mon 2026-03-02");
    }

    #[test]
    fn the_bar_fills_from_left_to_right() {
        assert_eq!(
            bar(filled(0.0)),
            format!("\r\u{1b}[K[{}]   0 %", ".".repeat(40))
        );
        let half = format!("\r\u{1b}[K[{}{}]  50 %", "#".repeat(20), ".".repeat(20));
        assert_eq!(bar(filled(0.5)), half);
        assert_eq!(
            bar(filled(1.0)),
            format!("\r\u{1b}[K[{}] 100 %", "#".repeat(40))
        );
    }
}
