//! Counts instructions instead of time, so that results do not depend on the load of the machine. Every benchmark runs
//! under valgrind once and several times over; the difference is the cost of one run without its setup.
//!
//! `cargo bench -p foretide-models --bench instructions` needs `valgrind` on the path, and reports when it is missing.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

#[path = "subjects/mod.rs"]
mod subjects;

use std::hint::black_box;
use std::process::Command;

use foretide_models::Series;
use jiff::SignedDuration;

use self::subjects::{DAY, five_minutes, five_minutes_uncalibrated, forecasters, history, model};

/// A benchmark: its name, and a function that runs it a number of times.
type Subject = (&'static str, fn(usize));

const SUBJECTS: [Subject; 12] = [
    ("dsp: first answer from 3 days", |n| answer("dsp", 3, n)),
    ("dsp: first answer from 14 days", |n| answer("dsp", 14, n)),
    ("seasonalNaive: first answer from 14 days", |n| {
        answer("seasonalNaive", 14, n);
    }),
    ("auto: first answer from 14 days", |n| answer("auto", 14, n)),
    ("auto: learn 14 days, decision only", |n| learn(false, n)),
    ("auto: learn 14 days, with the path", |n| learn(true, n)),
    ("auto: 5 minutes, decision only", |n| minutes(false, n)),
    ("auto: 5 minutes, with the path", |n| minutes(true, n)),
    ("auto: the same without renewing the margins", |n| {
        minutes_uncalibrated(false, n);
    }),
    ("seasonalNaive: 5 answers, a minute apart", |n| {
        answers_apart("seasonalNaive", n);
    }),
    ("dsp: 5 answers, a minute apart", |n| {
        answers_apart("dsp", n);
    }),
    ("auto: 5 answers, a minute apart", |n| {
        answers_apart("auto", n);
    }),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, subject, times] = arguments.as_slice()
        && flag == "--run"
    {
        let subject = SUBJECTS.iter().find(|(name, _)| name == subject);
        if let (Some((_, run)), Ok(times)) = (subject, times.parse()) {
            run(times);
        }
        return;
    }
    // `cargo test --benches` runs this too, and must not take minutes.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    for (name, _) in SUBJECTS {
        match (count(name, 1), count(name, 3)) {
            (Some(once), Some(thrice)) => {
                let cost = thrice.saturating_sub(once) / 2;
                println!("{name:48} {:>14} instructions", grouped(cost));
            }
            _ => println!("{name:48} not counted: is valgrind installed?"),
        }
    }
}

/// Runs a subject under valgrind and reads how many instructions that took.
fn count(subject: &str, times: usize) -> Option<u64> {
    let own = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(own)
        .args(["--run", subject, &times.to_string()])
        .output()
        .ok()?;
    let printed = String::from_utf8(output.stderr).ok()?;
    let line = printed.lines().find(|line| line.contains("refs:"))?;
    let digits = line.rsplit(':').next()?.replace([',', ' '], "");
    digits.parse().ok()
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8(groups.join(&b',')).unwrap_or_default()
}

fn answer(name: &str, days: usize, times: usize) {
    let history = history(days, false);
    for _ in 0..times {
        let asked = forecasters()
            .into_iter()
            .filter(|(other, _)| *other == name);
        for (_, mut forecaster) in asked {
            black_box(
                forecaster
                    .forecast(&history, SignedDuration::from_hours(2))
                    .ok(),
            );
        }
    }
}

/// Five answers, each a minute of history after the other, by one forecaster.
fn answers_apart(name: &str, times: usize) {
    let all = history(15, false);
    let until = |minute| {
        let values = all.values().get(..minute).unwrap_or_default().to_vec();
        Series::from_values(all.start(), all.step(), values)
    };
    let asked = forecasters()
        .into_iter()
        .filter(|(other, _)| *other == name);
    for (_, mut forecaster) in asked {
        let horizon = SignedDuration::from_hours(2);
        black_box(forecaster.forecast(&until(14 * DAY), horizon).ok());
        for minute in 14 * DAY + 1..14 * DAY + 1 + 5 * times {
            black_box(forecaster.forecast(&until(minute), horizon).ok());
        }
    }
}

fn learn(path: bool, times: usize) {
    for _ in 0..times {
        black_box(model(14, path));
    }
}

fn minutes(path: bool, times: usize) {
    let mut model = model(14, path);
    for time in 0..times {
        five_minutes(&mut model, 14 * DAY + 5 * time);
    }
}

fn minutes_uncalibrated(path: bool, times: usize) {
    let mut model = model(14, path);
    for time in 0..times {
        five_minutes_uncalibrated(&mut model, 14 * DAY + 5 * time);
    }
}
