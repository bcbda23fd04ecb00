//! Advice on reasons of conditions, and a line to copy: the one table that the page and `foretide explain` read.

use foretide_crds::CronSpec;
use foretide_domain::{Replicas, proposal::Source, words::ANOTHER_WRITER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use super::{
    api::Remedy,
    block::Column,
    record::{Latest, Recorded},
};

/// A line to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// No line.
    None,
    /// List of the aggregated APIs.
    ApiServices,
    /// List of the pods of the workload.
    Pods,
    /// The target.
    Target,
    /// Requests of the target's containers.
    Requests,
    /// Open the object in an editor.
    Edit,
    /// The log of the controller.
    Logs,
    /// `maxReplicas` as high as the highest proposal of the last day, and as its demand needed.
    RaiseMax,
    /// Scale the target to one replica.
    Resume,
    /// Take over the HPA on the target.
    Adopt,
    /// Next openings of the first cron.
    CronNext,
    /// The members.
    Members,
    /// The share of a lost member goes to others.
    Reassign,
    /// Tell Argo CD to leave the replicas alone.
    IgnoreReplicas,
}

/// Reasons, the advice on them, and the line.
const TABLE: &[(&[&str], &str, Line)] = &[
    (
        &["MissingRequest"],
        "set resources.requests of every container, or target an averageValue",
        Line::Requests,
    ),
    (
        &[
            "FailedGetPodsMetric",
            "FailedGetObjectMetric",
            "FailedGetExternalMetric",
        ],
        "check that the metrics adapter runs and knows the metric: kubectl get apiservices",
        Line::ApiServices,
    ),
    (
        &[
            "MetricNotRead",
            "FailedGetResourceMetric",
            "FailedGetContainerResourceMetric",
        ],
        "check that metrics-server (or the metrics adapter) runs: kubectl get apiservices",
        Line::ApiServices,
    ),
    (
        &["NoSamples", "StaleSamples"],
        "check that the pods run and that the metric is still measured: its API answers, without a current value",
        Line::Pods,
    ),
    (
        &["MetricAdapterUnavailable"],
        "check the pods of foretide-adapter, and kubectl get apiservice v1beta1.external.metrics.k8s.io",
        Line::ApiServices,
    ),
    (
        &["NoPods", "InvalidSelector", "AmbiguousSelector"],
        "check that the workload's selector selects its pods",
        Line::Target,
    ),
    (
        &["NoReadyPods"],
        "check why no pod of the workload is ready",
        Line::Pods,
    ),
    (
        &[
            "MissingContainer",
            "UnusableTarget",
            "UnknownMetricType",
            "InvalidMetricSourceType",
            "NotForecastable",
            "SmallTarget",
        ],
        "correct the metric that the message names; `foretide validate -f FILE` checks it before it is applied",
        Line::Edit,
    ),
    (
        &["Pending"],
        "wait some seconds; if it lasts, check that the controller's Prometheus (--prometheus) is reachable",
        Line::Logs,
    ),
    (
        &["MemoryLimit"],
        "raise the memory limit of the controller (resources of the chart) as docs/operations.md says, Memory",
        Line::None,
    ),
    (
        &["InsufficientHistory", "WarmingUp"],
        "wait for more history: `auto` needs two hours, `dsp` two days; until then Foretide scales without a forecast",
        Line::None,
    ),
    (
        &["NotDivided"],
        "forecast a metric of the load, such as cpu or requests: a forecast of what each pod has for itself adds pods for ever",
        Line::Edit,
    ),
    (
        &["PodsChanging"],
        "wait until the update has ended, or promote it: until then Foretide scales by the metrics, as an HPA does",
        Line::None,
    ),
    (
        &["HistoryMismatch"],
        "run the query of the message in Prometheus, and write one that counts the same pods into the annotation",
        Line::Edit,
    ),
    (
        &["HistoryWarmingUp"],
        "wait six minutes: the first samples after an outage may cover only some of the pods",
        Line::None,
    ),
    (
        &[
            "StaleHistory",
            "NoData",
            "TooManyGaps",
            "PartialHistory",
            "Expired",
        ],
        "check in Prometheus that the metric is still being collected",
        Line::Logs,
    ),
    (
        &["ZeroSeries", "NotPeriodic", "NumericalFailure"],
        "use the algorithm auto, or remove prediction: this history has nothing to forecast with this one",
        Line::Edit,
    ),
    (
        &["NoSkill", "NumericalFallback", "LevelShift"],
        "wait for the model to learn the new level; if it lasts, remove prediction: a plain HPA does as well",
        Line::None,
    ),
    (
        &["SeriesChanged"],
        "wait two hours for history in the new unit; if the change was not intended, check the query",
        Line::None,
    ),
    (
        &["QueryError"],
        "check that the controller's Prometheus (--prometheus, or the configuration file) is right and reachable",
        Line::Logs,
    ),
    (
        &["CredentialsUnreadable"],
        "check the files that the controller's configuration file names; they are read again with the next query",
        Line::Logs,
    ),
    (
        &["Unauthorized"],
        "check the credentials for this endpoint in the controller's configuration file",
        Line::Logs,
    ),
    (
        &["Forbidden"],
        "permit the account of this endpoint to query the series",
        Line::Logs,
    ),
    (
        &["TlsFailed"],
        "check certificates and their dates; tls.caFile in the controller's configuration file names who is trusted",
        Line::Logs,
    ),
    (
        &["QueryRefused"],
        "restrict the query to the object's own namespace",
        Line::Edit,
    ),
    (
        &["TooManyReplicas", "Censored"],
        "raise maxReplicas if the workload needs more",
        Line::RaiseMax,
    ),
    (
        &["TooFewReplicas"],
        "lower minReplicas if fewer are enough",
        Line::Edit,
    ),
    (
        &["ScalingDisabled", "Paused"],
        "scale the workload to 1 or more to resume autoscaling",
        Line::Resume,
    ),
    (
        &["FailedGetScale"],
        "check spec.scaleTargetRef: the workload must exist and have a scale",
        Line::Target,
    ),
    (
        &["TargetConflict"],
        "delete one of the two, adopt the HPA, or add the KEDA trigger that the message names",
        Line::Adopt,
    ),
    (
        &["NeverFires", "ZeroLength"],
        "correct start and end; `foretide cron next --expr START --end END` shows when a window is open",
        Line::CronNext,
    ),
    (
        &[
            "InvalidSpec",
            "InvalidBounds",
            "InvalidExpression",
            "InvalidTimeZone",
            "InvalidCron",
            "Invalid",
        ],
        "correct the field; `foretide validate -f FILE` checks it before it is applied",
        Line::Edit,
    ),
    (
        &["CacheStale"],
        "check that the API server answers, and what the controller logs about its watches",
        Line::Logs,
    ),
    (
        &["FailedUpdateScale", "FailedReconcileHPA"],
        "check what the controller logs: its account may lack a permission, or an admission webhook refuses the write",
        Line::Logs,
    ),
    (
        &["InternalError"],
        "report the panic message of the controller's log as a bug",
        Line::Logs,
    ),
    (
        &["ExternalWriter", "ForeignWriter", "Foreign"],
        ANOTHER_WRITER,
        Line::IgnoreReplicas,
    ),
    (
        &["NoMembers"],
        "register member clusters with `foretide members add`",
        Line::Members,
    ),
    (
        &["NoCandidate", "TargetAbsent", "Tainted"],
        "check spec.clusterAffinity, the taints of the clusters, and that the workload exists there",
        Line::Edit,
    ),
    (
        &["NoPriority", "NoPreference"],
        "set a priority in spec.federatedHPAAssignment.clusterAutoscalingPreference",
        Line::Edit,
    ),
    (
        &["NoCapacityAnywhere", "FloorUnmet", "Blocked"],
        "add nodes or clusters, or mark clusters with node autoscaling as elastic",
        Line::Pods,
    ),
    (
        &["BudgetHeldByLost"],
        "restore the lost cluster, or set failurePolicy: Reassign",
        Line::Reassign,
    ),
    (
        &["Unreachable", "Unknown", "Failed"],
        "check the cluster and the kubeconfig in its Secret",
        Line::Members,
    ),
];

/// The suggested action for a reason, where its message does not contain it.
pub fn advice(reason: &str) -> Option<&'static str> {
    row(reason).map(|(_, text, _)| *text)
}

fn row(reason: &str) -> Option<&'static (&'static [&'static str], &'static str, Line)> {
    TABLE.iter().find(|(reasons, ..)| reasons.contains(&reason))
}

/// The remedy for a condition of this autoscaler; `namespace` is that of the controller, if it runs in the cluster.
pub fn of(condition: &Condition, recorded: &Recorded, namespace: Option<&str>) -> Option<Remedy> {
    let (_, text, line) = row(cause(condition, &recorded.latest))?;
    Some(Remedy {
        // The page shows plain text, in which the marks of code would stay.
        text: text.replace('`', ""),
        copy: line.of(recorded, namespace),
    })
}

/// The reason to mend: that of the unreadable metric's proposal, where it is more precise than the condition's.
fn cause<'a>(condition: &'a Condition, latest: &'a Latest) -> &'a str {
    let own = &*condition.reason;
    let Some(decision) = &latest.status.common.decision else {
        return own;
    };
    if !(own.starts_with("FailedGet") && own.ends_with("Metric")) {
        return own;
    }
    let proposals = decision.proposals.iter().flatten();
    proposals
        .filter(|it| it.source == Source::Observed && it.replicas.is_none())
        .filter_map(|proposal| proposal.reason.as_deref())
        .find(|reason| *reason != "MetricNotRead" && row(reason).is_some())
        .unwrap_or(own)
}

/// The most replicas that were asked for within the last recorded day.
fn most_asked(recorded: &Recorded) -> Option<u32> {
    let day = recorded.latest.at.as_second() - 24 * 3600;
    let rows = recorded.minutes.rows(day, i64::MAX);
    let asked = rows.counts(Column::Highest).into_iter().flatten();
    let needed = rows.needed().into_iter().flatten();
    let needed = needed.map(|needed| Replicas::for_demand(needed.into()).get());
    asked.chain(needed).max()
}

// === impl Line ===

impl Line {
    /// The line for an autoscaler.
    fn of(self, recorded: &Recorded, controller: Option<&str>) -> Option<String> {
        let latest = &*recorded.latest;
        let key = &latest.key;
        let spec = latest.autoscaler.spec();
        let namespace = quoted(&key.namespace);
        let object = format!("{} {}", quoted(&key.resource), quoted(&key.name));
        let kind = spec.scale_target_ref.kind.to_lowercase();
        let target = quoted(&format!("{kind}/{}", spec.scale_target_ref.name));
        let on = |verb: &str, rest: &str| Some(format!("kubectl -n {namespace} {verb} {rest}"));
        match self {
            Self::None => None,
            Self::ApiServices => Some("kubectl get apiservices".to_owned()),
            Self::Pods => on("get pods", "-o wide"),
            Self::Target => on("describe", &target),
            Self::Requests => on(
                "set resources",
                &format!("{target} --requests=cpu=100m,memory=128Mi"),
            ),
            Self::Edit => on("edit", &object),
            // Outside of a cluster, the controller is no Deployment whose log could be read.
            Self::Logs => controller.map(|namespace| {
                let namespace = quoted(namespace);
                format!("kubectl -n {namespace} logs deployment/foretide-controller --since=10m")
            }),
            Self::RaiseMax => {
                let asked = most_asked(recorded);
                let max = asked.filter(|asked| i64::from(*asked) > spec.max_replicas.into())?;
                let patch = quoted(&format!(r#"{{"spec":{{"maxReplicas":{max}}}}}"#));
                on("patch", &format!("{object} --type=merge -p {patch}"))
            }
            Self::Resume => on("scale", &format!("{target} --replicas=1")),
            Self::Adopt => on(
                "annotate",
                &format!("{object} {}=true", foretide_api::ownership::ADOPT),
            ),
            Self::CronNext => spec.crons.iter().flatten().next().map(cron_next),
            Self::Members => Some("foretide members list".to_owned()),
            Self::Reassign => {
                let patch = quoted(r#"{"spec":{"failurePolicy":"Reassign"}}"#);
                on("patch", &format!("{object} --type=merge -p {patch}"))
            }
            Self::IgnoreReplicas => {
                let target = &spec.scale_target_ref;
                let version = target.api_version.as_deref().unwrap_or_default();
                let group = foretide_domain::api_group(version);
                Some(ignore_replicas(group, &target.kind))
            }
        }
    }
}

/// Part of a manifest. Texts of JSON are texts of YAML, whatever is in them.
fn ignore_replicas(group: &str, kind: &str) -> String {
    let (group, kind) = (json!(group), json!(kind));
    format!(
        "# in the Application of Argo CD\nspec:\n  ignoreDifferences:\n  - group: {group}\n    kind: {kind}\n    \
         jsonPointers: [/spec/replicas]\n  syncPolicy:\n    syncOptions: [RespectIgnoreDifferences=true]"
    )
}

fn cron_next(cron: &CronSpec) -> String {
    let [start, end] =
        [&cron.start, &cron.end].map(|time| quoted(time.as_deref().unwrap_or_default()));
    let zone = match &cron.timezone {
        Some(zone) => format!(" --tz {}", quoted(zone)),
        None => String::new(),
    };
    format!("foretide cron next --expr {start} --end {end}{zone}")
}

/// A word of a command line of a shell, quoted if it needs that.
fn quoted(word: &str) -> String {
    let mut signs = word.chars();
    if !word.is_empty() && signs.all(|it| it.is_ascii_alphanumeric() || "-_./:=".contains(it)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, env, fs, iter, path::Path};

    use foretide_domain::{autoscale::Limit, proposal};

    use super::*;

    /// Reasons after which there is nothing to do.
    const NOTHING_TO_DO: &[&str] = &[
        // Healthy states.
        "Decided",
        "Preview",
        "ReadByHPA",
        "ScaledByKEDA",
        "PausedByKEDA",
        "ForecastReady",
        "ValidMetricFound",
        "WindowActive",
        "NoActiveWindow",
        "ReadyForNewScale",
        "DesiredWithinRange",
        "Assigned",
        "Balanced",
        "Reachable",
        "NoConflict",
        "Known",
        "Constant",
        "WithinTolerance",
        "PodsWithoutMetrics",
        "NotComputed",
        // States that end by themselves.
        "ScaleUpLimit",
        "ScaleDownLimit",
        "ScaleUpStabilized",
        "ScaleDownStabilized",
        "HistoryLost",
        "MetricUnavailable",
        "NoMetrics",
        // Reactions of the hub to the state of a cluster.
        "Recovered",
        "Floor",
        "Restored",
        "Leaving",
        "NoBudget",
        "Landing",
        "Landed",
        "Drained",
        "Relief",
        "Saturated",
        "Donor",
        "FloorLifted",
        "Starved",
        "Optimized",
        "ShrinkOrder",
        "Held",
        "LocalDemand",
        "Slept",
        "Woken",
        "Asleep",
        "Steady",
    ];

    const CONDITIONS: &str = "docs/conditions.md";

    fn page(file: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(file);
        fs::read_to_string(path).unwrap()
    }

    /// The table as `docs/conditions.md` has it.
    fn documented() -> String {
        let rows = TABLE.iter().map(|(reasons, text, _)| {
            let reasons = reasons.join("`, `");
            format!("| `{reasons}` | {text} |\n")
        });
        let head = "| reason | do |\n|---|---|\n".to_owned();
        iter::once(head).chain(rows).collect()
    }

    /// Every reason of the code's own sets, and every one that the documentation has for a condition or a missing forecast.
    fn reasons() -> BTreeSet<String> {
        let docs = page(CONDITIONS);
        let (conditions, _) = docs.split_once("### Reasons of a cluster").unwrap();
        let rows = conditions.lines().filter(|line| {
            ["| True | ", "| False | ", "| Unknown | "]
                .iter()
                .any(|status| line.contains(status))
        });
        let written = rows.flat_map(|row| {
            let cells: Vec<_> = row.split('|').collect();
            let reasons = cells
                .iter()
                .skip_while(|cell| !["True", "False", "Unknown"].contains(&cell.trim()))
                .nth(1);
            let reasons = reasons.unwrap().split('`').skip(1).step_by(2);
            reasons.map(str::to_owned).collect::<Vec<_>>()
        });
        let docs = page("docs/forecasting.md");
        let (_, forecasts) = docs.split_once("\n## When there is no forecast\n").unwrap();
        let (forecasts, _) = forecasts.split_once("\n## ").unwrap();
        let rows = forecasts.lines().filter(|line| line.starts_with("| `"));
        let missing = rows.flat_map(|row| {
            let (reasons, _) = row.split_once(" | ").unwrap();
            let reasons = reasons.split('`').skip(1).step_by(2);
            reasons.map(str::to_owned).collect::<Vec<_>>()
        });
        let proposals = proposal::Reason::ALL.iter().map(|reason| reason.as_str());
        let limits = Limit::ALL.iter().map(|limit| limit.as_str());
        let members = foretide_federate::Reason::ALL
            .iter()
            .map(|reason| reason.as_str());
        let own = proposals.chain(limits).chain(members).map(str::to_owned);
        written.chain(missing).chain(own).collect()
    }

    #[test]
    fn the_table_of_the_documentation_is_this_one() {
        let (text, table) = (page(CONDITIONS), documented());
        let (before, rest) = text.split_once("| reason | do |\n").unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        let expected = format!("{before}{table}\n{after}");
        if env::var_os("UPDATE").is_some_and(|value| value == "1") {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../..")
                .join(CONDITIONS);
            fs::write(path, &expected).unwrap();
        }
        assert!(
            page(CONDITIONS) == expected,
            "{CONDITIONS} is stale; run UPDATE=1 cargo test -p foretide-page remedy"
        );
    }

    #[test]
    fn every_reason_has_a_remedy_or_needs_none() {
        let all = reasons();
        assert!(
            all.contains("ReadyForNewScale") && all.contains("Unreachable"),
            "{all:?}"
        );
        let is_decided =
            |reason: &&String| advice(reason).is_some() != NOTHING_TO_DO.contains(&reason.as_str());
        let undecided: Vec<_> = all.iter().filter(|it| !is_decided(it)).collect();
        assert!(undecided.is_empty(), "{undecided:?}");
        let listed = TABLE.iter().flat_map(|(reasons, ..)| *reasons);
        let twice: BTreeSet<_> = listed.clone().collect();
        assert_eq!(twice.len(), listed.count(), "a reason is listed twice");
    }

    #[test]
    fn texts_of_a_manifest_are_quoted() {
        for (group, kind) in [
            ("apps", "Deployment"),
            ("", "No"),
            ("a: [b", "it's \"a\"\n  b: c"),
        ] {
            let manifest = ignore_replicas(group, kind);
            let read: serde_json::Value = serde_saphyr::from_str(&manifest).unwrap();
            let ignored = &read["spec"]["ignoreDifferences"][0];
            let pointers = json!(["/spec/replicas"]);
            let expected = json!({ "group": group, "kind": kind, "jsonPointers": pointers });
            assert_eq!(ignored, &expected);
        }
    }

    #[test]
    fn words_of_a_shell_are_quoted() {
        for (word, expected) in [
            ("shop", "shop"),
            ("deployment/web", "deployment/web"),
            ("", "''"),
            ("a b; rm -rf /", "'a b; rm -rf /'"),
            ("it's $HOME `id`", r"'it'\''s $HOME `id`'"),
            ("<script>", "'<script>'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
