//! `EffectiveHorizontalPodAutoscaler`: what a user asks for one workload.
//!
//! crane's kind, field for field, on autoscaling/v2; fields of our own are optional additions, so
//! crane's manifests apply unchanged. The doc comments are the descriptions that
//! `kubectl explain` shows. Nothing here gives a field a meaning: defaults that depend on other
//! fields, time zones and cron expressions belong to the validation of the service. Defaults of
//! the schema are applied by the API server, never by these types, so that an object is written
//! back as it was read. What the controller answers is in [`crate::EffectiveHorizontalPodAutoscalerStatus`].

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscalerBehavior, MetricSpec,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Algorithm, EffectiveHorizontalPodAutoscalerStatus, Passthrough};

/// CEL: one cron expression: an optional zone, then five fields or a name such as `@daily`.
const IS_CRON: &str = r"self.matches('^\\s*((CRON_)?TZ=\\S+\\s+)?(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[^@\\s]\\S*(\\s+\\S+){4})\\s*$')";

/// CEL: not `@every`, which [`IS_CRON`] refuses too, but with less to say.
const NOT_EVERY: &str = "!self.contains('@every')";

const CRON_FORM: &str = "a cron expression has five fields (minute hour day-of-month month day-of-week), such as '0 9 * * 1-5', or is one of @yearly @monthly @weekly @daily @hourly";
const CRON_EVERY: &str = "'@every' has no fixed times of day and cannot open or close a window; write five fields such as '0 */6 * * *'";

/// What an `EffectiveHorizontalPodAutoscaler` should do.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "autoscaling.crane.io",
    version = "v1alpha1",
    kind = "EffectiveHorizontalPodAutoscaler",
    namespaced,
    status = "EffectiveHorizontalPodAutoscalerStatus",
    shortname = "ehpa",
    derive = "PartialEq",
    doc = "Scales one workload to the largest of what its observed metrics, the forecast of those metrics and its cron windows ask for.",
    printcolumn(
        name = "STRATEGY",
        type_ = "string",
        json_path = ".spec.scaleStrategy",
        description = "Auto scales; Preview only shows what it would do."
    ),
    printcolumn(
        name = "MINPODS",
        type_ = "integer",
        json_path = ".spec.minReplicas",
        description = "Fewest replicas."
    ),
    printcolumn(
        name = "MAXPODS",
        type_ = "integer",
        json_path = ".spec.maxReplicas",
        description = "Most replicas."
    ),
    printcolumn(
        name = "SPECIFICPODS",
        type_ = "integer",
        json_path = ".spec.specificReplicas",
        description = "Replicas enforced under Preview."
    ),
    printcolumn(
        name = "REPLICAS",
        type_ = "integer",
        json_path = ".status.expectReplicas",
        description = "Replicas decided."
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.minReplicas) || self.minReplicas <= self.maxReplicas")
        .message("minReplicas must not exceed maxReplicas; lower minReplicas or raise maxReplicas")
        .field_path(".minReplicas")
)]
pub struct EffectiveHorizontalPodAutoscalerSpec {
    /// The workload to scale: any kind with a scale subresource, in the same namespace.
    #[x_kube(validation = Rule::new("size(self.kind) >= 1 && size(self.kind) <= 63 && size(self.name) >= 1 && size(self.name) <= 253")
        .message("scaleTargetRef needs the kind and the name of the workload (at most 63 and 253 characters), such as kind: Deployment, name: web"))]
    pub scale_target_ref: CrossVersionObjectReference,

    /// Fewest replicas. 0 allows scaling to zero. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1))]
    #[x_kube(validation = Rule::new("self >= 0")
        .message("minReplicas must be 0 or more; 0 allows scaling to zero"))]
    pub min_replicas: Option<i32>,

    /// Most replicas; whatever the metrics, the forecast or a cron window ask for, never more.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 10000")
        .message("maxReplicas must be between 1 and 10000; to stop a workload scale it to 0 replicas"))]
    pub max_replicas: i32,

    /// `Auto` scales the workload. `Preview` computes and shows everything, and scales only to
    /// `specificReplicas` if that is set. Switching takes effect at once. Default `Auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Auto"))]
    pub scale_strategy: Option<ScaleStrategy>,

    /// How `Auto` scales. `Delegated`: through a HorizontalPodAutoscaler that this object owns,
    /// which goes on scaling when the controller is down. `Direct`: the controller writes the
    /// scale itself. Left out, `Delegated`, except where a HorizontalPodAutoscaler cannot serve:
    /// with `minReplicas: 0`, or with crons and no metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,

    /// Under `Preview`, the number of replicas to scale to, kept within `minReplicas` and
    /// `maxReplicas`. Left out, `Preview` leaves the workload alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0")
        .message("specificReplicas must be 0 or more; leave it out to let Preview only watch"))]
    pub specific_replicas: Option<i32>,

    /// What to measure and the value to hold, exactly as in an autoscaling/v2
    /// HorizontalPodAutoscaler. The metric that asks for most replicas decides. Fields that this
    /// version does not know are kept and passed on. Left out, and without crons, cpu utilization
    /// is held at 80 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub metrics: Option<Vec<Passthrough<MetricSpec>>>,

    /// Times of the day or week at which a number of replicas is held. Where windows overlap the
    /// largest target counts; outside all windows crons ask for nothing when there are other
    /// sources, and hold the current replicas when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.all(a, self.exists_one(b, (has(a.name) ? a.name : '') == (has(b.name) ? b.name : '')))")
            .message("each cron needs a name of its own; rename or remove the repeated one")
    )]
    pub crons: Option<Vec<CronSpec>>,

    /// How fast to scale and how long to wait before scaling down, exactly as in an
    /// autoscaling/v2 HorizontalPodAutoscaler. Fields that this version does not know are kept and
    /// passed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Passthrough<HorizontalPodAutoscalerBehavior>>,

    /// Scales ahead of the load, by a forecast of every metric that has a history. Left out,
    /// nothing is forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
}

/// Whether to act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScaleStrategy {
    /// Scale the workload.
    #[default]
    Auto,
    /// Compute and show; scale only to `specificReplicas`.
    Preview,
}

/// Who writes the scale under [`ScaleStrategy::Auto`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// A child HorizontalPodAutoscaler.
    #[default]
    Delegated,
    /// The controller.
    Direct,
}

/// One cron window: a number of replicas, held from each `start` to the next `end`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.start) && size(self.start) > 0 && has(self.end) && size(self.end) > 0")
        .message("a cron needs start and end, such as start: '0 9 * * *' and end: '0 18 * * *'"),
    validation = Rule::new("has(self.targetReplicas)")
        .message("a cron needs targetReplicas, the number of replicas to hold between start and end")
)]
pub struct CronSpec {
    /// Name of the window, shown in the status; unique within the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,

    /// What the window is for, in your words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,

    /// Time zone of `start` and `end`: a name of the IANA database such as `Europe/Berlin`, or
    /// `Local` for the zone the controller is configured with. Default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub timezone: Option<String>,

    /// When the window opens, as five cron fields: minute, hour, day of month, month, day of week.
    /// `?` means `*`. Example: `0 9 * * 1-5`, weekdays at nine. A time skipped by daylight saving
    /// opens at the first instant after the gap; a repeated one opens the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = Rule::new(NOT_EVERY).message(CRON_EVERY),
        validation = Rule::new(format!("self == '' || {IS_CRON} || !({NOT_EVERY})")).message(CRON_FORM)
    )]
    pub start: Option<String>,

    /// When the window closes, written as `start`. It closes at the first `end` after each
    /// `start`, also when that is on another day. After it the replicas are held for the
    /// scale-down stabilization window (300 s unless `behavior` says otherwise).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = Rule::new(NOT_EVERY).message(CRON_EVERY),
        validation = Rule::new(format!("self == '' || {IS_CRON} || !({NOT_EVERY})")).message(CRON_FORM)
    )]
    pub end: Option<String>,

    /// Replicas to hold while the window is open; other sources may ask for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 10000")
        .message("targetReplicas must be between 0 and 10000"))]
    pub target_replicas: Option<i32>,
}

/// How to scale ahead of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(self.quantile) && has(self.maxUnderProvisionedPercent))")
        .message("quantile and maxUnderProvisionedPercent exclude each other: the second chooses the first; keep one")
)]
pub struct Prediction {
    /// How far ahead `dsp`, `percentile` and other forecasts of a whole path look: the peak of
    /// this window is provided for. `auto` looks ahead by `leadTimeSeconds` instead. Default 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 3600))]
    #[x_kube(validation = Rule::new("self >= 60 && self <= 604800")
        .message("predictionWindowSeconds must be between 60 and 604800 (one minute to seven days); 3600 is usual"))]
    pub prediction_window_seconds: Option<i32>,

    /// How to forecast. Left out, `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction_algorithm: Option<Algorithm>,

    /// Share of the time for which the forecast should be enough: 0.9 lets the demand exceed the
    /// forecast one minute in ten (the observed metrics still follow it). Higher costs more
    /// replicas. Default 0.9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("double(self) >= 0.5 && double(self) <= 0.999")
        .message("quantile must be between 0.5 and 0.999; 0.9 is usual, 0.99 costs more replicas"))]
    pub quantile: Option<f64>,

    /// How long a new replica takes from creation to ready. Left out, it is measured from the
    /// workload's own pods, and 120 until there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 30 && self <= 1200")
        .message("leadTimeSeconds must be between 30 and 1200; leave it out to have it measured"))]
    pub lead_time_seconds: Option<i32>,

    /// Instead of `quantile`: the share of minutes, in percent, that may be under-provisioned; the
    /// quantile that keeps it is found and adjusted from the past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("double(self) > 0.0 && double(self) < 100.0")
        .message("maxUnderProvisionedPercent must be above 0 and below 100; 1 is one minute in a hundred"))]
    pub max_under_provisioned_percent: Option<f64>,
}
