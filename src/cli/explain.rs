//! `foretide explain`: the reasons for the number of replicas of an autoscaler in a cluster.
//!
//! One object is read and its status is rendered as text; nothing is computed again, so the text cannot disagree with
//! the controller's actions. A fleet is explained like an autoscaler of one cluster, with its clusters added.

mod fleet;
mod live;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use foretide_backtest::{clock, manifest::Document, validate::is};
use foretide_crds::{
    DecisionStatus, EffectiveHorizontalPodAutoscaler, FederatedHPA, ForecastStatus, ProposalStatus,
    ScaleStrategy,
};
use foretide_domain::{
    cron::Zone,
    forecast::is_between,
    hpa::{MetricSpec, Settings},
    proposal::{Reason, Unit},
};
use foretide_models::DemandBounds;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize as _;
use serde_json::json;

use super::{
    context::CommandContext,
    decision::{self, Units, Zones},
    inputs,
    output::{CommandOutput, Failure, Paint, Screen, TextFormat, wrapped},
};
use foretide_api::{
    autoscaler::Autoscaler,
    status::is_healthy,
    validation::{self, Invalid},
};
use foretide_base::printable;
use foretide_page::remedy;

pub use self::live::{ClusterArgs, ObjectName};

/// The reason of the condition `Ready` of an object that does not act, because another autoscaler scales its target.
const CONFLICT: &str = "TargetConflict";
/// The group of flags of which one names the object.
const ONE_OBJECT: &str = "one-object";

/// Arguments of `foretide explain`.
#[expect(clippy::doc_markdown, reason = "help shows it as it is")]
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new(ONE_OBJECT).args(["object", "files"]).multiple(true)))]
pub struct ExplainArgs {
    /// EffectiveHorizontalPodAutoscaler or FederatedHPA in the cluster; without one, those of the namespace are listed
    #[arg(value_name = "[NAMESPACE/]NAME", conflicts_with = "files")]
    pub object: Option<ObjectName>,
    /// Read the object and its status from a file, as `kubectl get -o yaml` prints it, instead of the cluster; - reads
    /// standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Option<PathBuf>,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Print the last changes of the replicas, the latest first, each with its reason
    #[arg(long, requires = ONE_OBJECT)]
    pub history: bool,
    /// Print the explanation again after each change, until Ctrl-C
    #[arg(short, long, requires = "object")]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TextFormat,
}

/// Runs `foretide explain`.
///
/// # Errors
/// The cluster cannot be reached, or has no such object; or the file has none.
pub fn run(args: &ExplainArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    match &args.files {
        Some(file) => {
            let autoscaler = written(&inputs::documents(std::slice::from_ref(file))?)?;
            Ok(explained(&autoscaler, args, context))
        }
        None => live::run(args, context),
    }
}

/// Runs `foretide explain --watch`, which prints to standard output until the process is ended.
///
/// # Errors
/// As [`run`].
pub fn watch(args: &ExplainArgs, context: &CommandContext) -> Result<(), Failure> {
    live::watch(args, context, &mut std::io::stdout().lock())
}

/// The explanation of an autoscaler, or its last changes.
fn explained(
    autoscaler: &Autoscaler,
    args: &ExplainArgs,
    context: &CommandContext,
) -> CommandOutput {
    let screen = context.screen;
    match args.output {
        TextFormat::Json => json(autoscaler),
        TextFormat::Text if args.history => {
            let changes = autoscaler.status().and_then(|it| it.changes.as_deref());
            CommandOutput::text(table::changes(changes.unwrap_or_default(), screen))
        }
        TextFormat::Text => CommandOutput::text(text(autoscaler, screen, &context.local)),
    }
}

/// The one autoscaler among the documents.
fn written(documents: &[Document]) -> Result<Autoscaler, Failure> {
    let ours = documents.iter().filter(|document| {
        is::<EffectiveHorizontalPodAutoscaler>(document) || is::<FederatedHPA>(document)
    });
    let [document] = ours.collect::<Vec<_>>()[..] else {
        let kinds = documents
            .iter()
            .map(|document| match document.text("kind") {
                "" => "an object without kind",
                kind => kind,
            });
        let found = match kinds.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "no object".to_owned(),
            kinds => kinds,
        };
        let message =
            format!("expected one EffectiveHorizontalPodAutoscaler or FederatedHPA, found {found}");
        return Err(Failure::invalid(message));
    };
    let value = document.value();
    let read = if is::<FederatedHPA>(document) {
        FederatedHPA::deserialize(value).map(|it| Autoscaler::Federated(Arc::new(it)))
    } else {
        EffectiveHorizontalPodAutoscaler::deserialize(value)
            .map(|it| Autoscaler::Effective(Arc::new(it)))
    };
    read.map_err(|error| Failure::invalid(format!("{}: cannot be read: {error}", document.place())))
}

/// The status of an autoscaler in words and numbers.
pub fn text(autoscaler: &Autoscaler, screen: Screen, local: &Zone) -> String {
    let (workload, clusters) = match autoscaler {
        Autoscaler::Effective(ehpa) => (validation::workload(ehpa, local), String::new()),
        Autoscaler::Federated(fdhpa) => (
            // The metrics of a fleet are those of all its clusters.
            validation::fleet(fdhpa, local, SignedDuration::ZERO, &Settings::default())
                .map(|fleet| fleet.workload),
            fleet::clusters(fdhpa, screen),
        ),
    };
    let status = autoscaler.status().cloned().unwrap_or_default();
    let known = status.conditions.iter().flatten();
    // A conflict comes before the decision, which is not carried out because of it.
    let (first, rest): (Vec<_>, Vec<_>) = known.partition(|known| known.reason == CONFLICT);
    let mut blocks = vec![heading(autoscaler, screen), conditions(first, screen)];
    match &status.decision {
        Some(decision) => {
            let metrics = workload.as_ref().map_or(&[][..], |it| &it.metrics);
            blocks.push(previewed(autoscaler, decision));
            blocks.extend(decision_blocks(decision, metrics, screen));
        }
        None => blocks.push(no_decision(autoscaler, screen)),
    }
    blocks.push(clusters);
    blocks.push(decision::windows(
        status.windows.as_deref().unwrap_or_default(),
        &zones(autoscaler),
        screen,
    ));
    blocks.push(conditions(rest, screen));
    if let Err(Invalid(violations)) = workload {
        let lines = violations.iter().map(|it| format!("invalid: {it}"));
        blocks.push(lines.map(|line| screen.line(None, line)).collect());
    }
    if status.decision.is_some() && status.observed_generation != autoscaler.generation() {
        blocks.push(
            "The spec has changed since this decision, which applies to an older generation.\n"
                .to_owned(),
        );
    }
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// The fields of the status that explain it, under Foretide's own version and kind.
pub fn json(autoscaler: &Autoscaler) -> CommandOutput {
    let mut body = body(autoscaler);
    if let Autoscaler::Federated(_) = autoscaler {
        let fleet = autoscaler.stored_status().fleet;
        body["clusters"] = json!(fleet.clusters);
        body["unassigned"] = json!(fleet.unassigned);
    }
    CommandOutput::json("Explanation", body)
}

fn body(autoscaler: &Autoscaler) -> serde_json::Value {
    let status = autoscaler.status().cloned().unwrap_or_default();
    json!({
        "metadata": {
            "name": autoscaler.name(),
            "namespace": autoscaler.metadata().namespace,
            "generation": autoscaler.generation(),
        },
        "observedGeneration": status.observed_generation,
        "decision": status.decision,
        "windows": status.windows,
        "conditions": status.conditions,
        "changes": status.changes,
    })
}

/// The object, its target and its modes.
fn heading(autoscaler: &Autoscaler, screen: Screen) -> String {
    let spec = autoscaler.spec();
    let object = format!("{}/{}", autoscaler.namespace(), autoscaler.name());
    let least = spec.min_replicas.unwrap_or(1);
    let (least, policy) = match autoscaler {
        Autoscaler::Effective(_) => (least, String::new()),
        Autoscaler::Federated(fdhpa) => {
            let assignment = &fdhpa.spec.federated_hpa_assignment;
            let policy = assignment.federated_hpa_assignment_type.unwrap_or_default();
            // A fleet keeps at least one replica.
            (least.max(1), format!("{policy:?}, "))
        }
    };
    format!(
        "{}  {} {}, {} to {} replicas, {}{:?}{}\n",
        screen.paint(Paint::Strong, &object),
        printable::line(&spec.scale_target_ref.kind),
        printable::line(&spec.scale_target_ref.name),
        least,
        spec.max_replicas,
        policy,
        spec.scale_strategy.unwrap_or_default(),
        if is_in_conflict(autoscaler) {
            ", not acting"
        } else {
            ""
        },
    )
}

/// Returns whether the object does not act, because another autoscaler scales its target. A fleet acts in its other
/// clusters.
fn is_in_conflict(autoscaler: &Autoscaler) -> bool {
    if matches!(autoscaler, Autoscaler::Federated(_)) {
        return false;
    }
    let conditions = autoscaler.status().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|known| known.reason == CONFLICT)
}

/// The effect that the decision of an object that does not act would have.
fn previewed(autoscaler: &Autoscaler, decision: &DecisionStatus) -> String {
    let counts = decision.current_replicas.zip(decision.desired);
    let is_preview = autoscaler.spec().scale_strategy == Some(ScaleStrategy::Preview);
    match counts.filter(|_| is_preview || is_in_conflict(autoscaler)) {
        Some((current, desired)) if current == desired => {
            format!("Not written; the {current} that run are the desired count.\n")
        }
        Some((current, desired)) => {
            format!("Not written: would scale from {current} to {desired}.\n")
        }
        None => String::new(),
    }
}

fn decision_blocks(
    decision: &DecisionStatus,
    metrics: &[MetricSpec],
    screen: Screen,
) -> [String; 4] {
    let at = decision
        .time
        .as_ref()
        .map(|time| format!(" {}", clock(time.0)));
    let message = decision.message.clone().unwrap_or_default();
    [
        screen.verdict(&message),
        decision::proposals(decision, Units::of(metrics), screen),
        forecasts(decision, screen),
        format!(
            "{}\n{}\n",
            decision::steps(decision, screen),
            screen.paint(Paint::Dim, &format!("decided{}", at.unwrap_or_default()))
        ),
    ]
}

/// One sentence per forecast on its basis, and one per history on its query; a query is not wrapped, so that it can be
/// copied.
fn forecasts(decision: &DecisionStatus, screen: Screen) -> String {
    let mut lines = Vec::new();
    for proposal in decision.proposals.iter().flatten() {
        if let Some(forecast) = &proposal.forecast {
            let mut sentence = grounds(&proposal.name, forecast);
            sentence.push_str(&kept(proposal).unwrap_or_default());
            lines.push(screen.line(None, sentence));
        }
        if let Some(query) = &proposal.query {
            lines.push(format!("{}: history by {query}\n", proposal.name));
        }
    }
    lines.concat()
}

/// The bounds between which a forecast keeps its count; none for a count that is new, or not between them.
fn kept(proposal: &ProposalStatus) -> Option<String> {
    let forecast = proposal.forecast.as_ref()?;
    let (raise, hold) = (
        number(forecast.raise.as_ref())?,
        number(forecast.hold.as_ref())?,
    );
    let is_kept = proposal.reason.as_deref() == Some(Reason::WithinTolerance.as_str());
    let replicas = proposal.replicas.filter(|_| is_kept)?;
    let carried = f64::from(replicas) * number(proposal.target.as_ref())?;
    let unit = Unit::of_metric(&proposal.name);
    is_between(DemandBounds { raise, hold }, carried).then(|| {
        format!(
            "; {replicas} stay: the peak is {} when a new replica is ready, and {} until then",
            unit.amount(raise),
            unit.amount(hold)
        )
    })
}

fn number(text: Option<&String>) -> Option<f64> {
    text?.parse().ok()
}

fn percent(share: Option<&String>) -> Option<String> {
    Some(format!("{} %", (number(share)? * 1000.0).round() / 10.0))
}

/// Resolution of a forecast's history: readings of one minute, or means of the query.
fn learned(share: f64) -> String {
    if share < 0.5 {
        return "learned from the query's own means; its minutes may vary more".to_owned();
    }
    format!("learned from one-minute readings ({:.0} %)", share * 100.0)
}

/// Basis of one forecast, as a sentence.
fn grounds(metric: &str, forecast: &ForecastStatus) -> String {
    let algorithm = forecast.algorithm.as_deref().unwrap_or("an algorithm");
    let mut text = match percent(forecast.quantile.as_ref()) {
        Some(quantile) => {
            format!("{metric}: the {quantile} upper quantile of the demand, by {algorithm}")
        }
        None => format!("{metric}: forecast by {algorithm}"),
    };
    if let (Some(lead), Some(source)) = (forecast.lead_time_seconds, &forecast.lead_time_source) {
        text.extend([format!(", for a lead time of {lead} s ({source})")]);
    }
    let coverage = percent(forecast.coverage.as_ref()).map(|share| format!("coverage {share}"));
    let skill = number(forecast.skill.as_ref()).map(|skill| {
        let word = if skill < 0.0 { "worse" } else { "better" };
        let percent = skill.abs() * 100.0;
        format!("{percent:.0} % {word} than repeating the current level")
    });
    let measured: Vec<_> = coverage.into_iter().chain(skill).collect();
    let measured =
        (!measured.is_empty()).then(|| format!("measured over 3 days: {}", measured.join(", ")));
    let since = forecast.learnt_from.as_ref();
    let parts = [
        Some(text),
        measured,
        since.map(|from| format!("trained on samples since {}", clock(from.0))),
        number(forecast.minute_readings.as_ref()).map(learned),
        forecast.message.clone(),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn no_decision(autoscaler: &Autoscaler, screen: Screen) -> String {
    let seen = autoscaler.status().is_some();
    let text = if seen {
        "No decision yet; see the conditions."
    } else {
        "No decision and no status yet: check that the controller runs and watches this namespace."
    };
    format!("{}\n", wrapped(text, screen.width(), ""))
}

/// The zones of the cron windows of a spec; `Local` is the controller's, which is not known here.
fn zones(autoscaler: &Autoscaler) -> Zones {
    let zones = autoscaler.spec().crons.iter().flatten().filter_map(|cron| {
        let zone = Zone::parse(cron.timezone.as_deref().unwrap_or_default(), &Zone::utc()).ok()?;
        Some((cron.name.clone().unwrap_or_default(), zone))
    });
    zones.collect()
}

/// The unhealthy conditions, each with a suggested action.
fn conditions(conditions: Vec<&Condition>, screen: Screen) -> String {
    let mut text = String::new();
    let unhealthy = conditions
        .into_iter()
        .filter(|known| !is_healthy(&known.type_, &known.status));
    for condition in unhealthy {
        let (reason, message) = (&condition.reason, &condition.message);
        let head = format!("{} {} {reason}", condition.type_, condition.status);
        text += &(screen.paint(Paint::Warning, &head) + "\n");
        if !message.is_empty() {
            text += &screen.indented(message);
        }
        if let Some(advice) = remedy::advice(reason) {
            text += &screen.indented(&format!("Suggested action: {advice}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use foretide_domain::proposal::Source;

    use super::*;

    #[test]
    fn a_forecast_that_is_being_computed_does_not_wait_for_history() {
        let [pending, short] =
            ["Pending", "InsufficientHistory"].map(|it| remedy::advice(it).unwrap());
        assert!(pending.starts_with("wait some seconds"), "{pending}");
        assert!(short.starts_with("wait for more history"), "{short}");
    }

    #[test]
    fn a_forecast_is_explained_in_one_sentence() {
        let text = |text: &str| Some(text.to_owned());
        let measured = ForecastStatus {
            algorithm: text("auto"),
            quantile: text("0.9"),
            coverage: text("0.912"),
            skill: text("0.35"),
            lead_time_seconds: Some(60),
            lead_time_source: text("measured"),
            minute_readings: text("0.972"),
            ..ForecastStatus::default()
        };
        let worse = ForecastStatus {
            algorithm: text("auto"),
            skill: text("-0.1"),
            message: text("the level shifted within the last hour"),
            minute_readings: text("0"),
            ..ForecastStatus::default()
        };
        for (forecast, want) in [
            (
                measured,
                "resource.cpu: the 90 % upper quantile of the demand, by auto, for a lead time of 60 s (measured); \
                 measured over 3 days: coverage 91.2 %, 35 % better than repeating the current level; \
                 learned from one-minute readings (97 %)",
            ),
            (
                worse,
                "resource.cpu: forecast by auto; measured over 3 days: 10 % worse than repeating the current level; \
                 learned from the query's own means; its minutes may vary more; \
                 the level shifted within the last hour",
            ),
            (
                ForecastStatus::default(),
                "resource.cpu: forecast by an algorithm",
            ),
        ] {
            assert_eq!(grounds("resource.cpu", &forecast), want);
        }
    }

    #[test]
    fn a_kept_count_is_explained_by_both_bounds() {
        let text = |text: &str| Some(text.to_owned());
        let proposal = |reason: &str, raise: &str| ProposalStatus {
            source: Source::Forecast,
            name: "resource.cpu".to_owned(),
            replicas: Some(12),
            value: text("1.2"),
            target: text("0.1"),
            reason: text(reason),
            forecast: Some(ForecastStatus {
                raise: text(raise),
                hold: text("1.3"),
                ..ForecastStatus::default()
            }),
            query: None,
        };
        let sentence = "; 12 stay: the peak is 1.05 cores when a new replica is ready, and 1.3 cores until then";
        for (reason, raise, want) in [
            ("WithinTolerance", "1.05", Some(sentence)),
            ("WithinTolerance", "1.3", None),
            // Twelve replicas carry less, and stay because it is not a tenth less.
            ("WithinTolerance", "1.25", None),
            ("ForecastReady", "1.05", None),
        ] {
            assert_eq!(kept(&proposal(reason, raise)).as_deref(), want);
        }
    }
}
