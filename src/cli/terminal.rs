//! Commands that draw while they run: frames at the rate of the wall clock, a progress bar, and a clean end on Ctrl-C.
//!
//! What is drawn comes from functions that know neither the terminal nor the clock.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};

use super::{
    CommandContext,
    context::Progress,
    demo::{self, DemoArgs, Playback},
    exit, output,
};
use crate::{error::chain, printable};

/// How wide a progress bar is.
const BAR: u32 = 40;

/// Waits between frames, and listens for the signals that end the animation.
struct FrameTimer {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
}

// === impl FrameTimer ===

impl FrameTimer {
    fn new() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Signals are received from here on, also those that arrive between two waits.
        let (interrupt, terminate) = {
            let _entered = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            )
        };
        Ok(Self {
            runtime,
            interrupt,
            terminate,
        })
    }

    fn wait(&mut self, span: Duration) -> Playback {
        let (interrupt, terminate) = (&mut self.interrupt, &mut self.terminate);
        self.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(span) => Playback::Continue,
                _ = interrupt.recv() => Playback::Stop,
                _ = terminate.recv() => Playback::Stop,
            }
        })
    }
}

/// Plays the demo on standard output.
pub(super) fn play(args: &DemoArgs, context: &CommandContext) -> ExitCode {
    let mut timer = match FrameTimer::new() {
        Ok(timer) => timer,
        Err(error) => return exit::failed(&chain(&error)),
    };
    let mut wait = |span| timer.wait(span);
    let mut to = std::io::stdout().lock();
    match demo::play(args, context, &mut to, &mut wait) {
        Ok(()) => exit::OK,
        Err(failure) => output::print(Err(failure), context.screen),
    }
}

/// Runs a command that tells what it is doing, which is shown where standard error is a terminal.
pub(super) fn with_progress<T>(run: impl FnOnce(&mut dyn FnMut(Progress<'_>)) -> T) -> T {
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

/// What a command is doing, on one line.
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
        let half = format!("\r[{}{}]  50 %", "#".repeat(20), ".".repeat(20));
        assert_eq!(bar(filled(0.5)), half);
        assert_eq!(
            bar(filled(1.0)),
            format!("\r\u{1b}[K[{}] 100 %", "#".repeat(40))
        );
    }
}
