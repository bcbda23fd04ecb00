//! Commands that draw while they run: frames at the rate of the wall clock, a progress bar, and a clean end on Ctrl-C
//! and on a panic.
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
    context::{Progress, terminal_size},
    demo::{self, DemoArgs, Playback, Terminal},
    exit,
    output::{self, Size},
};
use crate::{error::chain, printable};

/// The size of a terminal that reports none.
const USUAL: Size = Size {
    columns: 80,
    rows: 24,
};
/// What a shell adds to the number of the signal that ended a program.
const SIGNALED: i32 = 128;
/// How wide a progress bar is.
const BAR: u32 = 40;

/// Waits between frames, and listens for the signals that end the animation.
struct FrameTimer {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    /// The signal that ended the animation.
    ended_by: Option<SignalKind>,
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
            ended_by: None,
        })
    }

    /// The exit code: that of a program that the signal ended, as shells report it.
    fn exit(&self) -> ExitCode {
        let signal = self.ended_by.map(|signal| SIGNALED + signal.as_raw_value());
        let code = signal.and_then(|code| u8::try_from(code).ok());
        code.map_or(exit::OK, ExitCode::from)
    }
}

impl Terminal for FrameTimer {
    fn size(&mut self) -> Size {
        terminal_size().unwrap_or(USUAL)
    }

    fn wait(&mut self, span: Duration) -> Playback {
        let (interrupt, terminate) = (&mut self.interrupt, &mut self.terminate);
        self.ended_by = self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = interrupt.recv() => Some(SignalKind::interrupt()),
                _ = terminate.recv() => Some(SignalKind::terminate()),
                () = tokio::time::sleep(span) => None,
            }
        });
        match self.ended_by {
            Some(_) => Playback::Stop,
            None => Playback::Continue,
        }
    }
}

/// Plays the demo on standard output, or prints its final picture where nothing can be animated.
pub(super) fn demo(args: &DemoArgs, context: &CommandContext) -> ExitCode {
    if !demo::animates(args, context.screen) {
        return output::print(demo::run(args, context), context.screen);
    }
    let mut timer = match FrameTimer::new() {
        Ok(timer) => timer,
        Err(error) => return exit::failed(&chain(&error)),
    };
    restore_before_panics();
    let mut to = std::io::stdout().lock();
    match demo::play(args, context, &mut to, &mut timer) {
        Ok(()) => timer.exit(),
        Err(failure) => output::print(Err(failure), context.screen),
    }
}

/// Leaves the alternate screen before a panic is reported, which would vanish with it.
fn restore_before_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The panic may have come from a write, so not through the lock of standard output.
        let _left = rustix::io::write(std::io::stdout(), demo::LEAVE.as_bytes()).is_ok();
        report(panic);
    }));
}

/// Runs a command that reports its progress, which is shown where standard error is a terminal.
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
        let half = format!("\r\u{1b}[K[{}{}]  50 %", "#".repeat(20), ".".repeat(20));
        assert_eq!(bar(filled(0.5)), half);
        assert_eq!(
            bar(filled(1.0)),
            format!("\r\u{1b}[K[{}] 100 %", "#".repeat(40))
        );
    }
}
