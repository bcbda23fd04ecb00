//! `foretide demo`: an animated back-test of an example, Foretide above a plain HPA; or a fleet of clusters that share
//! replicas.
//!
//! Decisions, forecasts and numbers are those of `foretide backtest`, or of a hub, over demand that `scenario` and
//! `fleet` generate. The caller of `play` provides the waiting between frames.

mod animation;
mod fleet;
mod scenario;

use std::io::{self, Write};
use std::time::Duration;

use self::{animation::BacktestAnimation, fleet::FleetAnimation, scenario::Scenario};
use super::{
    backtest::BacktestSetup,
    context::CommandContext,
    output::{CommandOutput, Failure, Screen},
};

/// How long a frame is shown at speed 1.
const FRAME: Duration = Duration::from_millis(80);

/// Arguments of `foretide demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Demand of the day that is shown
    #[arg(long = "scene", value_name = "SCENE", value_enum, default_value_t)]
    pub scenario: Scenario,
    /// Show a fleet instead: three clusters share one workload's replicas; one runs out of nodes, one has replicas to
    /// spare, one is unreachable for a while
    #[arg(long, conflicts_with = "scenario")]
    pub fleet: bool,
    /// Playback speed: 2 is twice as fast; 1 takes about half a minute
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed)]
    pub speed: f64,
    /// Print only the final picture, as when standard output is not a terminal
    #[arg(long)]
    pub no_animation: bool,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
}

/// Whether the animation continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Playback {
    Continue,
    Stop,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok();
    speed
        .filter(|speed| (0.01..=1000.0).contains(speed))
        .ok_or_else(|| format!("expected a factor from 0.01 to 1000, got {text:?}"))
}

/// A sequence of pictures with an end.
trait Animation {
    /// Advances by one frame.
    fn advance(&mut self);
    /// Whether the end is reached.
    fn is_over(&self) -> bool;
    /// The current picture; every frame has the same number of lines.
    fn frame(&self, screen: Screen) -> String;
    /// The totals at the end.
    fn summary(&self, screen: Screen) -> String;
}

/// The final picture and the totals, without animation.
///
/// # Errors
/// The example cannot be used, which its tests rule out.
pub(super) fn run(args: &DemoArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let screen = drawn_on(args, context.screen);
    let mut setup = None;
    let mut animation = animation(args, context, &mut setup)?;
    while !animation.is_over() {
        animation.advance();
    }
    Ok(CommandOutput::text(format!(
        "{}\n{}",
        animation.frame(screen),
        animation.summary(screen)
    )))
}

fn animation<'a>(
    args: &DemoArgs,
    context: &CommandContext,
    setup: &'a mut Option<BacktestSetup>,
) -> Result<Box<dyn Animation + 'a>, Failure> {
    if args.fleet {
        return Ok(Box::new(FleetAnimation::new()));
    }
    let setup = setup.insert(args.scenario.setup(context)?);
    Ok(Box::new(BacktestAnimation::new(setup, args.scenario)))
}

/// Plays the animation on a terminal: `wait` waits after each frame, and returns whether to continue.
///
/// The cursor is hidden while it plays, and shown again however it ends.
///
/// # Errors
/// The example cannot be used, or the terminal cannot be written to.
pub(super) fn play(
    args: &DemoArgs,
    context: &CommandContext,
    to: &mut dyn Write,
    wait: &mut dyn FnMut(Duration) -> Playback,
) -> Result<(), Failure> {
    let mut setup = None;
    let mut animation = animation(args, context, &mut setup)?;
    let screen = drawn_on(args, context.screen);
    let frame_time = FRAME.div_f64(args.speed);
    let played = frames(&mut *animation, frame_time, screen, &mut *to, wait);
    let shown = write!(to, "{SHOW_CURSOR}").and_then(|()| to.flush());
    match played.and(shown) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::runtime(format!(
            "cannot write the output: {error}"
        ))),
        Ok(()) | Err(_) => Ok(()),
    }
}

const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";
/// Clears the rest of a line of an older frame.
const CLEAR_LINE: &str = "\u{1b}[K";

fn frames(
    animation: &mut dyn Animation,
    frame_time: Duration,
    screen: Screen,
    to: &mut dyn Write,
    wait: &mut dyn FnMut(Duration) -> Playback,
) -> io::Result<()> {
    write!(to, "{HIDE_CURSOR}")?;
    loop {
        animation.advance();
        let frame = animation.frame(screen);
        for line in frame.lines() {
            writeln!(to, "{line}{CLEAR_LINE}")?;
        }
        to.flush()?;
        if animation.is_over() {
            return write!(to, "{CLEAR_LINE}\n{}", animation.summary(screen));
        }
        if wait(frame_time) == Playback::Stop {
            return Ok(());
        }
        // The next frame overwrites this one.
        write!(to, "\u{1b}[{}A", frame.lines().count())?;
    }
}

fn drawn_on(args: &DemoArgs, screen: Screen) -> Screen {
    Screen {
        unicode: screen.unicode && !args.ascii,
        ..screen
    }
}

#[cfg(test)]
mod tests {
    use foretide_domain::cron::Zone;
    use jiff::Timestamp;

    use super::*;

    const PLAIN: Screen = Screen {
        color: false,
        unicode: true,
    };

    /// A plain screen at the epoch, in UTC.
    pub(super) fn context() -> CommandContext {
        CommandContext {
            screen: PLAIN,
            local: Zone::utc(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn args() -> DemoArgs {
        DemoArgs {
            scenario: Scenario::default(),
            fleet: false,
            speed: 1.0,
            no_animation: false,
            ascii: false,
        }
    }

    fn played(frames: usize) -> (String, Vec<Duration>) {
        let mut waits = Vec::new();
        let mut out = Vec::new();
        let mut wait = |span: Duration| {
            waits.push(span);
            if waits.len() == frames {
                Playback::Stop
            } else {
                Playback::Continue
            }
        };
        play(&args(), &context(), &mut out, &mut wait).unwrap();
        (String::from_utf8(out).unwrap(), waits)
    }

    #[test]
    fn the_animation_ends_with_the_final_picture_after_about_half_a_minute() {
        let (text, waits) = played(usize::MAX);
        let output = run(&args(), &context()).unwrap().text;
        let last = text.rsplit('A').next().unwrap();
        let last = last.replace(CLEAR_LINE, "").replace(SHOW_CURSOR, "");
        assert!(
            output.ends_with(&last[last.find('\n').unwrap()..]),
            "{last}"
        );
        let seconds = waits.iter().sum::<Duration>().as_secs();
        assert!((25..=35).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn a_stopped_animation_shows_the_cursor_again() {
        let (text, waits) = played(3);
        assert_eq!(waits.len(), 3);
        assert!(text.starts_with(HIDE_CURSOR));
        assert!(text.ends_with(SHOW_CURSOR));
    }

    #[test]
    fn every_frame_has_the_height_of_the_one_before() {
        let (text, _) = played(40);
        let ups = text
            .split("\u{1b}[")
            .filter_map(|code| code.split_once('A'));
        let heights: Vec<_> = ups.filter_map(|(n, _)| n.parse::<usize>().ok()).collect();
        assert_eq!(heights.len(), 39);
        assert!(
            heights.windows(2).all(|pair| pair[0] == pair[1]),
            "{heights:?}"
        );
    }

    #[test]
    fn the_forecast_is_drawn_ahead_of_now_and_behind_now_at_the_end() {
        let screen = Screen {
            unicode: false,
            ..PLAIN
        };
        let setup = args().scenario.setup(&context()).unwrap();
        let mut animation = BacktestAnimation::new(&setup, args().scenario);
        animation.pass(setup.minutes() / 3);
        let ours = |animation: &BacktestAnimation<'_>| {
            let frame = animation.frame(screen);
            let upper = frame.split("plain HPA").next().unwrap_or_default();
            upper.lines().skip(2).collect::<Vec<_>>().join("\n")
        };
        let playing = ours(&animation);
        assert!(playing.contains('*') && playing.contains('~'), "{playing}");
        animation.pass(setup.minutes());
        let over = ours(&animation);
        assert!(!over.contains('*') && over.contains('~'), "{over}");
    }

    #[test]
    fn a_speed_is_a_factor_above_zero() {
        assert_eq!(parse_speed("2.5"), Ok(2.5));
        for bad in ["0", "-1", "NaN", "fast"] {
            assert!(parse_speed(bad).is_err(), "{bad}");
        }
    }
}
