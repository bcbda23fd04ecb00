//! What is measured in one phase of `isolation`, and its row of the table.

use super::{
    PERIOD,
    decisions::{Ages, Span},
    machine::CpuTime,
    process::Process,
};

/// What was measured in one phase.
pub(super) struct Phase {
    pub(super) name: String,
    pub(super) others: Ages,
    pub(super) users: Option<Ages>,
    /// How long after its start the last of the users' windows was carried out, in seconds, and how many were not.
    pub(super) windows: Option<(f64, usize)>,
    /// The age of the oldest forecast of all others, in seconds.
    pub(super) oldest_forecast: f64,
    pub(super) busy_percent: u64,
    pub(super) cpu_percent: f64,
}

/// What the machine did since the start of a phase.
pub(super) struct Meter {
    machine: CpuTime,
    process: f64,
}

// === impl Meter ===

impl Meter {
    pub(super) fn start(process: &Process) -> Self {
        Self {
            machine: CpuTime::now(),
            process: process.cpu_seconds(),
        }
    }

    /// How busy the machine was, and the CPU that the controller used of one core, both in percent.
    pub(super) fn end(self, process: &Process, span: Span) -> (u64, f64) {
        let used = process.cpu_seconds() - self.process;
        let seconds = span.to.duration_since(span.from).as_secs_f64();
        (self.machine.busy_percent(), used * 100.0 / seconds)
    }
}

// === impl Phase ===

impl Phase {
    pub(super) fn print(&self, name: &str) {
        let name = if name.is_empty() { &self.name } else { name };
        let (p99, worst) = (self.others.percentile(99), self.others.worst());
        println!("{name}: p99 {p99:.2} s, worst {worst:.2} s");
    }

    fn row(&self, undisturbed: f64) -> String {
        let p99 = self.others.percentile(99);
        let users = self.users.as_ref();
        let users = users.map_or("-".to_owned(), |ages| {
            format!("{:.2} / {:.2} s", ages.percentile(99), ages.worst())
        });
        let windows = match self.windows {
            None => "-".to_owned(),
            Some((worst, 0)) => {
                format!("{worst:.1} s, {:.1} periods", worst / PERIOD.as_secs_f64())
            }
            Some((worst, missed)) => format!("{worst:.1} s, {missed} missed"),
        };
        format!(
            "| {} | {} | {:.2} s | {p99:.2} s | {:.2} s | **{:.3}** | {users} | {windows} | {:.0} s | {} % | {:.0} % |",
            self.name,
            self.others.count(),
            self.others.percentile(50),
            self.others.worst(),
            p99 / undisturbed,
            self.oldest_forecast,
            self.busy_percent,
            self.cpu_percent,
        )
    }
}

pub(super) fn print_table(phases: &[Phase]) {
    println!(
        "| phase | decisions of the others | age p50 | p99 | worst | ratio of p99 | p99 / worst of its users | their \
         windows, worst | oldest forecast of the others | machine busy | controller, of one core |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let undisturbed = phases
        .first()
        .map_or(1.0, |first| first.others.percentile(99));
    for phase in phases {
        println!("{}", phase.row(undisturbed));
    }
}
