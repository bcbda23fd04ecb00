//! `foretide cron`: the times at which a cron fires, and at which a window is active.

use clap::{Args, Subcommand};
use foretide_domain::cron::{
    Activity, Ambiguity, Expression, ExpressionError, Occurrence, Window, WindowError, WindowField,
    WindowProblem, WindowText, Zone, ZoneError, occurrences,
};
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::{
    context::CommandContext,
    output::{CommandOutput, Failure, OutputFormat, Screen},
};
use foretide_base::error::chain;

/// Arguments of `foretide cron`.
#[derive(Debug, Args)]
pub struct CronArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: CronCommand,
}

/// Subcommands of `foretide cron`.
#[derive(Debug, Subcommand)]
pub enum CronCommand {
    /// Print the next times of an expression, or the next windows between two expressions
    Next(NextArgs),
}

/// Arguments of `foretide cron next`.
#[derive(Debug, Args)]
pub struct NextArgs {
    /// Cron expression; with --end, the one that starts the window
    #[arg(long)]
    pub expr: String,
    /// Cron expression that ends the window
    #[arg(long)]
    pub end: Option<String>,
    /// Time zone: an IANA name, Local, or empty for UTC
    #[arg(long = "tz", default_value = "")]
    pub timezone: String,
    /// Number of entries to print
    #[arg(
        short = 'n',
        long = "count",
        default_value_t = 5,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub count: u16,
    /// Start time, in RFC 3339 or as local time of the zone [default: now]
    #[arg(long)]
    pub from: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Reason for which there is nothing to print.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// `--expr` is not an expression.
    #[error("--expr is invalid")]
    Expression(#[source] ExpressionError),
    /// `--end` is not an expression.
    #[error("--end is invalid")]
    End(#[source] ExpressionError),
    /// `--tz` is not a zone.
    #[error("--tz is invalid")]
    Zone(#[source] ZoneError),
    /// `--from` is not a time.
    #[error("--from `{0}` is not a time: expected 2026-03-08T09:00 or 2026-03-08T09:00:00Z")]
    From(String),
    /// No date matches the expression.
    #[error("`{0}` matches no date, so it never fires")]
    NeverFires(String),
    /// The window can never be active.
    #[error("the window is never active: {}", problem_text(*.0))]
    NeverActive(WindowProblem),
}

/// One firing of an expression.
#[derive(Serialize)]
struct Firing {
    at: Timestamp,
    local: String,
    remark: Option<String>,
}

/// One time in which a window is active.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Opening {
    start: Timestamp,
    end: Option<Timestamp>,
    local_start: String,
    local_end: Option<String>,
    length: Option<String>,
    remark: Option<String>,
}

impl From<WindowError> for CronError {
    fn from(error: WindowError) -> Self {
        match error {
            WindowError::Expression {
                field: WindowField::Start,
                source,
                ..
            } => Self::Expression(source),
            WindowError::Expression {
                field: WindowField::End,
                source,
                ..
            } => Self::End(source),
            WindowError::Zone { source, .. } => Self::Zone(source),
        }
    }
}

fn problem_text(problem: WindowProblem) -> &'static str {
    match problem {
        WindowProblem::ZeroLength => "--expr and --end name the same times",
        WindowProblem::StartNeverFires => "no date matches --expr",
        WindowProblem::EndNeverFires => "no date matches --end",
    }
}

/// Runs `foretide cron`.
///
/// # Errors
/// A flag cannot be used.
pub fn run(args: &CronArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let CronCommand::Next(args) = &args.command;
    match next(args, &context.local, context.now) {
        Ok(text) => Ok(CommandOutput::text(text)),
        Err(error) => Err(Failure::usage(chain(&error))),
    }
}

/// Text of `foretide cron next`.
///
/// `local` is the zone for `Local`; `now` is the start time without `--from`.
///
/// # Errors
/// [`CronError`] naming the flag that is invalid, or the reason for which the expression or the window never takes
/// effect.
fn next(args: &NextArgs, local: &Zone, now: Timestamp) -> Result<String, CronError> {
    match &args.end {
        Some(end) => next_windows(args, end, local, now),
        None => next_firings(args, local, now),
    }
}

// === firings ===

fn next_firings(args: &NextArgs, local: &Zone, now: Timestamp) -> Result<String, CronError> {
    let expression = Expression::parse(&args.expr).map_err(CronError::Expression)?;
    let name = expression.zone_name().unwrap_or(&args.timezone);
    let zone = Zone::parse(name, local).map_err(CronError::Zone)?;
    if expression.never_fires() {
        return Err(CronError::NeverFires(args.expr.clone()));
    }
    let from = just_before(begin(args, &zone, now)?);
    let firings = occurrences(&expression, &zone, from)
        .take(usize::from(args.count))
        .map(|found| Firing {
            at: found.at,
            local: shown(found.at, &zone),
            remark: standing_remark(&found),
        });
    if args.output == OutputFormat::Json {
        return Ok(items("CronFirings", firings));
    }
    let header = ["FIRES", "UTC", "REMARK"];
    let rows = firings.map(|it| [it.local, it.at.to_string(), it.remark.unwrap_or_default()]);
    let table = Screen::default().table(header, rows);
    Ok(format!("{expression} in {}\n{table}", zone.name()))
}

/// The effect of a clock change on one firing.
fn standing_remark(found: &Occurrence) -> Option<String> {
    let civil = found.civil.strftime("%H:%M");
    match found.ambiguity {
        Ambiguity::Unambiguous => None,
        Ambiguity::Gap => Some(format!("{civil} is skipped: the clocks go forward")),
        Ambiguity::Fold => Some(format!("{civil} occurs twice; the first one counts")),
    }
}

// === windows ===

fn next_windows(
    args: &NextArgs,
    end: &str,
    local: &Zone,
    now: Timestamp,
) -> Result<String, CronError> {
    // Only times are printed, so name and replicas do not matter.
    let text = WindowText {
        name: "",
        start: &args.expr,
        end,
        timezone: &args.timezone,
        target_replicas: 0,
    };
    let window = Window::parse(&text, local)?;
    if let Some(problem) = window.problem() {
        return Err(CronError::NeverActive(problem));
    }
    let from = begin(args, window.start_zone(), now)?;
    let openings = window
        .activities(from)
        .take(usize::from(args.count))
        .map(|activity| {
            let Activity { since, until } = activity;
            Opening {
                start: since,
                end: until,
                local_start: shown(since, window.start_zone()),
                local_end: until.map(|until| shown(until, window.end_zone())),
                length: until.map(|until| format!("{:#}", until.duration_since(since))),
                remark: window_remark(activity, &window),
            }
        });
    if args.output == OutputFormat::Json {
        return Ok(items("CronWindows", openings));
    }
    let rows = openings.map(|it| {
        [
            it.local_start,
            it.local_end.unwrap_or_else(|| "no end".to_owned()),
            it.length.unwrap_or_default(),
            it.remark.unwrap_or_default(),
        ]
    });
    let table = Screen::default().table(["START", "END", "LENGTH", "REMARK"], rows);
    let (start, end, zone) = (window.start(), window.end(), window.start_zone().name());
    Ok(format!("{start} to {end} in {zone}\n{table}"))
}

/// The effect of a clock change on one window: at its start, at its end, or in between.
fn window_remark(activity: Activity, window: &Window) -> Option<String> {
    let edge = |name: &str, at, expression, zone| {
        let found = occurrences(expression, zone, just_before(at)).next()?;
        let remark = standing_remark(&found).filter(|_| found.at == at)?;
        Some(format!("{name} {remark}"))
    };
    edge("start", activity.since, window.start(), window.start_zone())
        .or_else(|| edge("end", activity.until?, window.end(), window.end_zone()))
        .or_else(|| within_remark(activity, window.start_zone()))
}

fn within_remark(activity: Activity, zone: &Zone) -> Option<String> {
    let offset = |at| i64::from(zone.rules().to_offset(at).seconds());
    let moved = offset(activity.until?) - offset(activity.since);
    let direction = if moved > 0 { "forward" } else { "back" };
    let by = SignedDuration::from_secs(moved.abs());
    (moved != 0).then(|| format!("the clocks go {direction} by {by:#}"))
}

// === times and text ===

/// `--from`, or now.
fn begin(args: &NextArgs, zone: &Zone, now: Timestamp) -> Result<Timestamp, CronError> {
    let Some(from) = &args.from else {
        return Ok(now);
    };
    from.parse::<Timestamp>()
        .ok()
        .or_else(|| Some(zone.resolve(from.parse::<DateTime>().ok()?)?.0))
        .ok_or_else(|| CronError::From(from.clone()))
}

/// A list as JSON.
fn items<T: Serialize>(kind: &str, items: impl Iterator<Item = T>) -> String {
    let items: Vec<_> = items.collect();
    CommandOutput::json(kind, json!({ "items": items })).text
}

/// The latest instant before `at`, so that a firing at `at` is found.
fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at)
}

/// An instant as the zone's clocks show it, with weekday and offset.
fn shown(at: Timestamp, zone: &Zone) -> String {
    at.to_zoned(zone.rules().clone())
        .strftime("%a %Y-%m-%d %H:%M %:z")
        .to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        cron: CronArgs,
    }

    fn zone(name: &str) -> Zone {
        Zone::parse(name, &Zone::utc()).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-20T09:30:00Z".parse().unwrap()
    }

    /// The output for flags of `cron next`.
    fn run(flags: &[&str]) -> Result<String, CronError> {
        let program = Program::try_parse_from(["foretide", "next"].iter().chain(flags)).unwrap();
        let CronCommand::Next(args) = program.cron.command;
        next(&args, &zone("Asia/Tokyo"), now())
    }

    #[test]
    fn firings_are_listed_with_offsets_and_what_the_clocks_do() {
        let flags = [
            "--expr",
            "30 2 * * 6,0",
            "--tz",
            "America/New_York",
            "-n",
            "3",
            "--from",
            "2026-03-07T02:30",
        ];
        assert_eq!(
            run(&flags).unwrap(),
            "30 2 * * 0,6 in America/New_York\n\
             FIRES                        UTC                   REMARK\n\
             Sat 2026-03-07 02:30 -05:00  2026-03-07T07:30:00Z\n\
             Sun 2026-03-08 03:00 -04:00  2026-03-08T07:00:00Z  02:30 is skipped: the clocks go forward\n\
             Sat 2026-03-14 02:30 -04:00  2026-03-14T06:30:00Z\n"
        );
    }

    #[test]
    fn windows_are_listed_with_lengths_and_what_the_clocks_do() {
        let flags = [
            "--expr",
            "0 22 * * *",
            "--end",
            "30 1 * * *",
            "--tz",
            "America/New_York",
            "-n",
            "2",
            "--from",
            "2026-10-31T12:00:00-04:00",
        ];
        assert_eq!(
            run(&flags).unwrap(),
            "0 22 * * * to 30 1 * * * in America/New_York\n\
             START                        END                          LENGTH  REMARK\n\
             Sat 2026-10-31 22:00 -04:00  Sun 2026-11-01 01:30 -04:00  3h 30m  end 01:30 occurs twice; the first one counts\n\
             Sun 2026-11-01 22:00 -05:00  Mon 2026-11-02 01:30 -05:00  3h 30m\n"
        );
        let across = run(&[
            "--expr",
            "0 22 * * *",
            "--end",
            "0 6 * * *",
            "--tz",
            "America/New_York",
            "-n",
            "1",
            "--from",
            "2026-10-31T12:00",
        ]);
        assert!(
            across
                .unwrap()
                .ends_with("9h      the clocks go back by 1h\n")
        );
    }

    #[test]
    fn without_from_and_zone_it_begins_now_in_utc() {
        let text = run(&["--expr", "30 9 * * *", "-n", "1"]).unwrap();
        assert!(text.contains("Fri 2026-11-20 09:30 +00:00"), "{text}");
        let text = run(&["--expr", "TZ=Local @daily", "-n", "1"]).unwrap();
        assert!(text.contains("Sat 2026-11-21 00:00 +09:00"), "{text}");
    }

    #[test]
    fn json_names_its_kind() {
        let text = run(&[
            "--expr",
            "0 9 * * *",
            "--end",
            "0 18 * * *",
            "-n",
            "1",
            "-o",
            "json",
        ])
        .unwrap();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            json!({
                "apiVersion": "foretide.io/v1alpha1",
                "kind": "CronWindows",
                "items": [{
                    "start": "2026-11-20T09:00:00Z",
                    "end": "2026-11-20T18:00:00Z",
                    "localStart": "Fri 2026-11-20 09:00 +00:00",
                    "localEnd": "Fri 2026-11-20 18:00 +00:00",
                    "length": "9h",
                    "remark": null,
                }],
            })
        );
    }

    #[test]
    fn refusals_name_the_flag() {
        let message = |flags: &[&str]| run(flags).unwrap_err().to_string();
        assert_eq!(message(&["--expr", "9"]), "--expr is invalid");
        assert_eq!(message(&["--expr", "9", "--end", "9"]), "--expr is invalid");
        assert_eq!(
            message(&["--expr", "@daily", "--end", "9"]),
            "--end is invalid"
        );
        assert_eq!(
            message(&["--expr", "0 9 * * *", "--tz", "Mars"]),
            "--tz is invalid"
        );
        assert_eq!(
            message(&["--expr", "0 9 30 2 *"]),
            "`0 9 30 2 *` matches no date, so it never fires"
        );
        assert_eq!(
            message(&["--expr", "0 9 * * *", "--end", "0 9 * * *"]),
            "the window is never active: --expr and --end name the same times"
        );
        assert_eq!(
            message(&["--expr", "0 9 * * *", "--from", "tomorrow"]),
            "--from `tomorrow` is not a time: expected 2026-03-08T09:00 or 2026-03-08T09:00:00Z"
        );
    }
}
