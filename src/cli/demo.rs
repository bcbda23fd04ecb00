//! `foretide demo`: an animated back-test of an example, Foretide above a plain HPA; or a fleet of clusters that share
//! replicas.
//!
//! Decisions, forecasts and numbers are those of `foretide backtest`, or of a hub, over demand that `scenario` and
//! `fleet` generate. A frame is a function of the state and the size of the terminal. The caller of `play` provides the
//! terminal.

mod animation;
mod digits;
mod fleet;
mod scenario;
#[cfg(test)]
mod tests;
pub mod web;

use std::io::{self, Write};
use std::time::Duration;

use foretide_chart::Chart;
use jiff::Timestamp;

use self::{animation::BacktestAnimation, fleet::FleetAnimation, scenario::Scenario};
use super::{
    backtest::BacktestSetup,
    context::CommandContext,
    decision::clock,
    output::{CommandOutput, Failure, Paint, Screen, Size, wrapped},
    web::{self as pages, ListenArgs},
};
use crate::http::page::PageSite;

/// How long a frame is shown at speed 1.
const FRAME: Duration = Duration::from_millis(80);
/// How many simulated seconds of the page pass per second at speed 1.
const PAGE_SPEED: f64 = 60.0;
/// The smallest terminal that the animation plays in.
const LEAST: Size = Size {
    columns: 80,
    rows: 24,
};
/// Pictures are not drawn wider than this: a column is then 4.5 minutes.
const MOST_COLUMNS: usize = 160;
/// The size of the still picture in a pipe or a file.
const PIPED: Size = Size {
    columns: 80,
    rows: 28,
};
/// How many lines a sentence has room for while the demo plays; longer ones make the pictures lower.
const SENTENCE: usize = 3;

/// Arguments of `foretide demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Demand of the day that is shown
    #[arg(long = "scene", value_name = "SCENE", value_enum, default_value_t)]
    pub scenario: Scenario,
    /// Show a fleet instead: three clusters share one workload's replicas; one runs out of nodes, one has replicas to
    /// spare, one is unreachable for a while
    #[arg(long, conflicts_with_all = ["scenario", "output"])]
    pub fleet: bool,
    #[command(flatten)]
    page: PageArgs,
    /// Playback speed: 2 is twice as fast; 1 takes about half a minute
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed)]
    pub speed: f64,
    /// Print only the final picture, as when standard output is not a terminal
    #[arg(long)]
    pub no_animation: bool,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PictureFormat,
}

/// The page instead of the animation.
#[derive(Debug, Clone, clap::Args)]
struct PageArgs {
    /// Serve the page with a simulated fleet until Ctrl-C, instead of playing
    #[arg(long, conflicts_with_all = ["scenario", "fleet", "output", "no_animation", "ascii"])]
    web: bool,
    #[command(flatten)]
    at: ListenArgs,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PictureFormat {
    /// The animation, or its final picture in characters
    #[default]
    Text,
    /// The final picture as SVG
    Svg,
}

/// The terminal that an animation is played on.
pub(super) trait Terminal {
    /// Its size now.
    fn size(&mut self) -> Size;
    /// Waits until the next frame.
    fn wait(&mut self, span: Duration) -> Playback;
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
    /// The current picture, in lines that are not wider than `size`, and in not more lines, if it has 50 columns and 20
    /// rows or more.
    fn frame(&self, size: Size, screen: Screen) -> String;
    /// The totals at the end, in lines that are not wider than `size`.
    fn summary(&self, size: Size, screen: Screen) -> String;
    /// The picture as data, if there is a form for it.
    fn chart(&self) -> Option<Chart>;
}

/// Serves the page of a simulated cluster until a signal; at speed 1, one of its minutes takes a second.
///
/// # Errors
/// The address cannot be listened on.
pub(super) fn serve(args: &DemoArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    pages::run(async {
        let (page, simulation) = web::start(context, args.speed * PAGE_SPEED)?;
        let site = PageSite::open(page, context.machine.clock());
        let router = site.with_lab(pages::lab(context)).router();
        pages::serve(args.page.at.listen, router, simulation, context.screen).await
    })
}

/// The final picture and the totals, without animation; as large as the screen.
///
/// # Errors
/// The example cannot be used, which its tests rule out.
pub(super) fn run(args: &DemoArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let screen = context.screen.with_ascii(args.ascii);
    let mut setup = None;
    let mut animation = animation(args, context, &mut setup)?;
    while !animation.is_over() {
        animation.advance();
    }
    if args.output == PictureFormat::Svg {
        let chart = animation.chart();
        return Ok(CommandOutput::text(
            chart.map(|chart| chart.svg()).unwrap_or_default(),
        ));
    }
    Ok(CommandOutput {
        notes: too_small(args, screen).unwrap_or_default(),
        ..CommandOutput::text(still(&*animation, screen))
    })
}

/// Whether the page is served instead.
pub(super) fn serves(args: &DemoArgs) -> bool {
    args.page.web
}

/// Whether the demo moves on this screen.
pub(super) fn animates(args: &DemoArgs, screen: Screen) -> bool {
    wanted(args, screen) && too_small(args, screen).is_none()
}

/// Whether it would move, if the screen is large enough.
fn wanted(args: &DemoArgs, screen: Screen) -> bool {
    screen.cursor && !args.no_animation && args.output == PictureFormat::Text
}

/// Why there is no animation although one is wanted: the size that it needs.
fn too_small(args: &DemoArgs, screen: Screen) -> Option<String> {
    let size = screen.size.filter(|_| wanted(args, screen))?;
    let small = size.columns < LEAST.columns || size.rows < LEAST.rows;
    small.then(|| {
        let note = format!(
            "foretide: the animation needs a terminal of {}x{}; this one has {}x{}",
            LEAST.columns, LEAST.rows, size.columns, size.rows
        );
        format!("{}\n", wrapped(&note, screen.width(), "  "))
    })
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

/// The picture and the totals, so that both fit on the screen above the next prompt.
fn still(animation: &dyn Animation, screen: Screen) -> String {
    let size = screen.size.map_or(PIPED, |size| Size {
        columns: size.columns.clamp(1, MOST_COLUMNS),
        rows: size.rows.saturating_sub(1),
    });
    let summary = animation.summary(size, screen);
    let gap = if size.rows < LEAST.rows { "" } else { "\n" };
    let rows = summary.lines().count() + gap.len();
    let rows = size.rows.saturating_sub(rows);
    let frame = animation.frame(Size { rows, ..size }, screen);
    format!("{frame}{gap}{summary}")
}

/// Plays the animation on a terminal: on its alternate screen, whatever the terminal showed before stays. What remains
/// on the normal screen is the final picture; nothing, if it was stopped.
///
/// # Errors
/// The example cannot be used, or the terminal cannot be written to.
pub(super) fn play(
    args: &DemoArgs,
    context: &CommandContext,
    to: &mut dyn Write,
    terminal: &mut dyn Terminal,
) -> Result<(), Failure> {
    let screen = context.screen.with_ascii(args.ascii);
    let mut setup = None;
    let mut animation = animation(args, context, &mut setup)?;
    let frame_time = FRAME.div_f64(args.speed);
    let played = frames(&mut *animation, frame_time, screen, &mut *to, terminal);
    // Also after an error, which would else be printed on the alternate screen.
    let left = write!(to, "{LEAVE}");
    let shown = played.and_then(|playback| {
        left?;
        if playback == Playback::Continue {
            let screen = Screen {
                size: Some(terminal.size()),
                ..screen
            };
            write!(to, "{}", still(&*animation, screen))?;
        }
        to.flush()
    });
    match shown {
        // Nobody reads the rest of a pipe that was closed.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::runtime(format!(
            "cannot write the output: {error}"
        ))),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Shows the alternate screen, hides the cursor, and cuts lines at the edge while the terminal is made narrower.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
/// Restores what [`ENTER`] changed.
pub(super) const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
/// Clears the rest of a line, before it is written: behind a full line it would clear its last column.
const CLEAR_LINE: &str = "\u{1b}[K";
/// Clears from here to the end of the screen.
const CLEAR_BELOW: &str = "\u{1b}[J";

/// Draws all frames; returns whether the end was reached.
fn frames(
    animation: &mut dyn Animation,
    frame_time: Duration,
    screen: Screen,
    to: &mut dyn Write,
    terminal: &mut dyn Terminal,
) -> io::Result<Playback> {
    // Written with the first frame: what is buffered during a panic would follow the sequences that restore the screen.
    let mut enter = ENTER;
    while !animation.is_over() {
        animation.advance();
        let size = terminal.size();
        let columns = size.columns.min(MOST_COLUMNS);
        let frame = animation.frame(Size { columns, ..size }, screen);
        write!(to, "{enter}{}", overwriting(&frame, size.rows))?;
        enter = "";
        to.flush()?;
        if terminal.wait(frame_time) == Playback::Stop {
            return Ok(Playback::Stop);
        }
    }
    Ok(Playback::Continue)
}

/// What draws a frame over the one before. No line break follows the last line, so that nothing scrolls.
fn overwriting(frame: &str, rows: usize) -> String {
    let lines: Vec<&str> = frame.lines().take(rows).collect();
    let lines = lines.join(&format!("\r\n{CLEAR_LINE}"));
    let (above, last) = lines.rsplit_once(CLEAR_LINE).unwrap_or(("", &lines));
    format!("{HOME}{CLEAR_LINE}{above}{CLEAR_BELOW}{last}")
}

/// The first line of a frame: the time, and what is shown if that fits.
fn heading(now: Timestamp, about: &str, columns: usize, screen: Screen) -> String {
    let name = "foretide demo";
    let now = clock(now);
    let all = format!("{now}; {about}");
    let fits = name.len() + 2 + all.chars().count() <= columns;
    let about = if fits { all } else { now };
    format!(
        "{}  {}",
        screen.paint(Paint::Strong, name),
        screen.paint(Paint::Dim, &about)
    )
}

/// A sentence in as many lines as it needs, each ended; at least [`SENTENCE`] while the animation plays, so that the
/// pictures keep their height.
fn sentence_lines(sentence: &str, columns: usize, indent: &str, over: bool) -> String {
    let mut text = wrapped(sentence, columns, indent);
    if !text.is_empty() {
        text.push('\n');
    }
    let least = if over { 0 } else { SENTENCE };
    let missing = least.saturating_sub(text.lines().count());
    text.push_str(&"\n".repeat(missing));
    text
}
