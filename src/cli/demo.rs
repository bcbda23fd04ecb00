//! `foretide demo`: a back-test of an example, played as a moving picture: Foretide above, a plain HPA below; or a fleet
//! of clusters that share their replicas.
//!
//! Nothing in it is staged: the decisions, forecasts and numbers are those of `foretide backtest`, or of a fleet's hub,
//! over demand that `scene` and `fleet` make up. The pace comes from whoever calls `play`; it refuses to look at a clock.

mod animation;
mod fleet;
mod scenario;

use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;

use self::{animation::Animation, fleet::Fleet, scenario::Scene};
use super::{
    backtest::BacktestSetup,
    output::{Answer, Failure, Screen},
};
use crate::domain::cron::Zone;

/// How long a frame stands at the usual speed.
const FRAME: Duration = Duration::from_millis(80);

/// Arguments of `foretide demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// What happens
    #[arg(long, value_enum, default_value_t)]
    pub scene: Scene,
    /// Instead, three clusters that share one workload's replicas: one fills up, another lends, a third is lost for a while
    #[arg(long, conflicts_with = "scene")]
    pub fleet: bool,
    /// How fast it plays: 2 is twice as fast; at 1 it takes about half a minute
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed)]
    pub speed: f64,
    /// Print the final picture at once; so it is, too, where standard output is no terminal
    #[arg(long)]
    pub no_animation: bool,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
}

/// Whether the play goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Frame,
    Stop,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok();
    speed
        .filter(|speed| (0.01..=1000.0).contains(speed))
        .ok_or_else(|| format!("expected a factor from 0.01 to 1000, got {text:?}"))
}

/// What is played: a picture that changes, up to its end.
trait Reel {
    /// Lets one frame's time pass.
    fn advance(&mut self);
    /// Whether the end is reached.
    fn is_over(&self) -> bool;
    /// The picture as it is now; every one has as many lines.
    fn frame(&self, screen: Screen) -> String;
    /// What it adds up to.
    fn credits(&self, screen: Screen) -> String;
}

/// The final picture and what it adds up to, at once.
///
/// # Errors
/// The example cannot be used, which its tests rule out.
pub(super) fn run(
    args: &DemoArgs,
    screen: Screen,
    (local, now): (&Zone, Timestamp),
) -> Result<Answer, Failure> {
    let screen = drawn_on(args, screen);
    let mut lab = None;
    let mut reel = reel(args, (local, now), &mut lab)?;
    while !reel.is_over() {
        reel.advance();
    }
    Ok(Answer::text(format!(
        "{}\n{}",
        reel.frame(screen),
        reel.credits(screen)
    )))
}

fn reel<'a>(
    args: &DemoArgs,
    (local, now): (&Zone, Timestamp),
    lab: &'a mut Option<BacktestSetup>,
) -> Result<Box<dyn Reel + 'a>, Failure> {
    if args.fleet {
        return Ok(Box::new(Fleet::new()));
    }
    let lab = lab.insert(args.scene.lab(local, now)?);
    Ok(Box::new(Animation::new(lab, args.scene)))
}

/// Plays it on a terminal: `wait` lets each frame stand, and says whether another one shall follow.
///
/// The cursor is hidden meanwhile, and shown again however it ends.
///
/// # Errors
/// The example cannot be used, or the terminal cannot be written to.
pub(super) fn play(
    args: &DemoArgs,
    screen: Screen,
    (local, now): (&Zone, Timestamp),
    (to, wait): (&mut dyn Write, &mut dyn FnMut(Duration) -> Next),
) -> Result<(), Failure> {
    let mut lab = None;
    let mut reel = reel(args, (local, now), &mut lab)?;
    let screen = drawn_on(args, screen);
    let played = frames(&mut *reel, args, screen, (&mut *to, wait));
    let shown = write!(to, "{SHOW_CURSOR}").and_then(|()| to.flush());
    match played.and(shown) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::runtime(format!(
            "the output cannot be written: {error}"
        ))),
        Ok(()) | Err(_) => Ok(()),
    }
}

const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";
/// Clears what an older frame left behind the end of a line.
const CLEAR_LINE: &str = "\u{1b}[K";

fn frames(
    reel: &mut dyn Reel,
    args: &DemoArgs,
    screen: Screen,
    (to, wait): (&mut dyn Write, &mut dyn FnMut(Duration) -> Next),
) -> io::Result<()> {
    let stands = FRAME.div_f64(args.speed);
    write!(to, "{HIDE_CURSOR}")?;
    loop {
        reel.advance();
        let frame = reel.frame(screen);
        for line in frame.lines() {
            writeln!(to, "{line}{CLEAR_LINE}")?;
        }
        to.flush()?;
        if reel.is_over() {
            return write!(to, "{CLEAR_LINE}\n{}", reel.credits(screen));
        }
        if wait(stands) == Next::Stop {
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
    use super::*;

    const PLAIN: Screen = Screen {
        colour: false,
        unicode: true,
    };

    fn args() -> DemoArgs {
        DemoArgs {
            scene: Scene::default(),
            fleet: false,
            speed: 1.0,
            no_animation: false,
            ascii: false,
        }
    }

    fn played(frames: usize) -> (String, Vec<Duration>) {
        let mut stood = Vec::new();
        let mut out = Vec::new();
        let mut wait = |span: Duration| {
            stood.push(span);
            if stood.len() == frames {
                Next::Stop
            } else {
                Next::Frame
            }
        };
        let around = (&Zone::utc(), Timestamp::UNIX_EPOCH);
        play(&args(), PLAIN, around, (&mut out, &mut wait)).unwrap();
        (String::from_utf8(out).unwrap(), stood)
    }

    #[test]
    fn played_to_its_end_it_leaves_the_final_picture_and_takes_about_half_a_minute() {
        let (text, stood) = played(usize::MAX);
        let around = (&Zone::utc(), Timestamp::UNIX_EPOCH);
        let answer = run(&args(), PLAIN, around).unwrap().text;
        let last = text.rsplit('A').next().unwrap();
        let last = last.replace(CLEAR_LINE, "").replace(SHOW_CURSOR, "");
        assert!(
            answer.ends_with(&last[last.find('\n').unwrap()..]),
            "{last}"
        );
        let seconds = stood.iter().sum::<Duration>().as_secs();
        assert!((25..=35).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn stopped_early_it_shows_the_cursor_again() {
        let (text, stood) = played(3);
        assert_eq!(stood.len(), 3);
        assert!(text.starts_with(HIDE_CURSOR));
        assert!(text.ends_with(SHOW_CURSOR));
    }

    #[test]
    fn every_frame_covers_the_one_before() {
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
    fn the_forecast_is_seen_ahead_of_now_while_it_plays_and_meets_the_demand_in_the_end() {
        let screen = Screen {
            unicode: false,
            ..PLAIN
        };
        let lab = args()
            .scene
            .lab(&Zone::utc(), Timestamp::UNIX_EPOCH)
            .unwrap();
        let mut film = Animation::new(&lab, args().scene);
        film.pass(lab.minutes() / 3);
        let ours = |film: &Animation<'_>| {
            let frame = film.frame(screen);
            let upper = frame.split("plain HPA").next().unwrap_or_default();
            upper.lines().skip(2).collect::<Vec<_>>().join("\n")
        };
        let playing = ours(&film);
        assert!(playing.contains('*') && playing.contains('~'), "{playing}");
        film.pass(lab.minutes());
        let over = ours(&film);
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
