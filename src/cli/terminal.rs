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
    backtest::{self, BacktestArgs},
    demo::{self, DemoArgs, Playback},
    exit, output,
};
use crate::error::chain;

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

/// Runs a back-test, with a progress bar where standard error is a terminal.
pub(super) fn backtest(args: &BacktestArgs, context: &CommandContext) -> ExitCode {
    let shows = std::io::stderr().is_terminal();
    let mut drawn = None;
    let mut progress = |part: f64| {
        let filled = filled(part);
        if shows && drawn != Some(filled) {
            drawn = Some(filled);
            draw(&bar(filled));
        }
    };
    let outcome = backtest::run(args, context, &mut progress);
    if shows {
        draw("\r\u{1b}[K");
    }
    output::print(outcome, context.screen)
}

fn bar(filled: u32) -> String {
    let bar: String = (0..BAR)
        .map(|cell| if cell < filled { '#' } else { '.' })
        .collect();
    format!("\r[{bar}] {:>3} %", filled * 100 / BAR)
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
    fn the_bar_fills_from_left_to_right() {
        assert_eq!(bar(filled(0.0)), format!("\r[{}]   0 %", ".".repeat(40)));
        let half = format!("\r[{}{}]  50 %", "#".repeat(20), ".".repeat(20));
        assert_eq!(bar(filled(0.5)), half);
        assert_eq!(bar(filled(1.0)), format!("\r[{}] 100 %", "#".repeat(40)));
    }
}
