//! The metrics that an autoscaler publishes for other autoscalers: its forecasts, its cron windows and its floor.
//!
//! Pure. They are read from the status, so that every process that serves them gives the same values. A status that is
//! too old is no answer: the reader gets an error, and a `HorizontalPodAutoscaler` that cannot read a metric does not scale
//! down.

use foretide_crds::{DecisionStatus, EffectiveHorizontalPodAutoscaler, ProposalStatus};
use foretide_domain::{
    Replicas,
    autoscale::published::{Amounts, CronInputs},
    proposal::Source,
    quantity::Quantity,
    words,
};
use jiff::{SignedDuration, Timestamp};

use super::ownership::fnv1a;

/// Name of the External metric of a forecast, as in crane.
pub const PREDICTION_METRIC: &str = "crane_autoscaling_prediction";
/// Name of the External metric of the cron windows, as in crane.
pub const CRON_METRIC: &str = "crane_autoscaling_cron";
/// Name of the Pods metric of the cpu forecast, as in crane before 0.6.
pub const POD_CPU_METRIC: &str = "crane_pod_cpu_usage";
/// `resourceIdentifier` of the cron windows.
pub const CRON_IDENTIFIER: &str = "cron";
/// The label that selects the series of [`POD_CPU_METRIC`], with the UID of the autoscaler.
pub const EHPA_UID_LABEL: &str = "autoscaling.crane.io/effective-hpa-uid";

/// The longest value of a label.
const LABEL_VALUE_MAX: usize = 63;

/// The period in which the status of an object that publishes is written, even if nothing changed.
pub const HEARTBEAT: SignedDuration = SignedDuration::from_mins(5);
/// The age at which a status is too old: three heartbeats.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// Name of the key of a KEDA trigger's metadata that names the autoscaler.
pub const KEDA_AUTOSCALER: &str = "autoscaler";
/// The address at which `deploy/` serves the KEDA external scaler.
pub const KEDA_ADDRESS: &str = "foretide-keda-scaler.foretide-system.svc:9000";

words! {
    /// The value that a KEDA trigger reads, by the word of its metadata.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum KedaSource {
        /// The floor: forecasts and cron windows together.
        Floor = "floor",
        /// The forecast of one metric.
        Forecast = "forecast",
        /// The cron windows.
        Cron = "cron",
    }
}

/// The metrics that an autoscaler publishes at one time.
#[derive(Debug, Clone, Copy)]
pub struct Published<'a> {
    object: &'a EffectiveHorizontalPodAutoscaler,
    now: Timestamp,
}

/// The forecast of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedForecast {
    /// The predicted peak of the whole workload within the prediction window, in the unit of the metric.
    pub total: Quantity,
    /// The target of one pod, in the same unit.
    pub per_pod: Quantity,
}

/// The reason why a metric is not published now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unpublished {
    /// There is no decision yet.
    #[error("{object} has no decision yet")]
    Undecided {
        /// The object.
        object: String,
    },
    /// The last decision is too old.
    #[error(
        "the last decision of {object} is of {at}; expected one of the last 15 minutes: does the controller run?"
    )]
    Stale {
        /// The object.
        object: String,
        /// Time of the decision.
        at: Timestamp,
    },
    /// There is no such forecast at the moment.
    #[error("{object} has no forecast of {identifier}: {reason}")]
    NoForecast {
        /// The object.
        object: String,
        /// The metric, such as `resource.cpu`.
        identifier: String,
        /// The reason of the status, or that the metric is not forecast.
        reason: String,
    },
    /// Something asks for replicas, and the last decision has no floor for it.
    #[error(
        "the last decision of {object} has no floor: in mode Metric it has one while KEDA scales the target of that object"
    )]
    NoFloor {
        /// The object.
        object: String,
    },
    /// There are no cron windows.
    #[error("{object} has no crons")]
    NoCrons {
        /// The object.
        object: String,
    },
}

// === impl Published ===

impl<'a> Published<'a> {
    /// The metrics that `object` publishes at `now`.
    pub const fn of(object: &'a EffectiveHorizontalPodAutoscaler, now: Timestamp) -> Self {
        Self { object, now }
    }

    /// The forecast of a metric, such as `resource.cpu`.
    ///
    /// # Errors
    /// [`Unpublished`] while there is none.
    pub fn forecast(&self, identifier: &str) -> Result<PublishedForecast, Unpublished> {
        let proposal = proposals(self.decision()?, Source::Forecast)
            // HPAs select a forecast by a label, whose value cannot be every identifier.
            .find(|it| it.name == identifier || label_value(&it.name) == identifier)
            .ok_or_else(|| self.no_forecast(identifier, "it is not forecast"))?;
        let Some(Amounts { total, per_pod }) = amounts(proposal) else {
            let reason = proposal.reason.as_deref().unwrap_or("it has no value");
            return Err(self.no_forecast(identifier, reason));
        };
        Ok(PublishedForecast { total, per_pod })
    }

    fn no_forecast(&self, identifier: &str, reason: &str) -> Unpublished {
        Unpublished::NoForecast {
            object: self.name(),
            identifier: identifier.to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// The target of one pod of the forecast metric, as of the last decision, however old that is. A decision without
    /// the forecast does not have it.
    ///
    /// # Errors
    /// [`Unpublished`] if the forecast has no value in it.
    pub fn forecast_target(&self, identifier: &str) -> Result<Quantity, Unpublished> {
        let time = self.stored().and_then(|decision| decision.time.as_ref());
        let then = Self {
            object: self.object,
            now: time.map_or(self.now, |time| time.0),
        };
        then.forecast(identifier).map(|forecast| forecast.per_pod)
    }

    /// The count of the cron windows: the largest `targetReplicas` of the open ones. With none open, the minimum if
    /// there are metrics too, so that they alone decide; otherwise the current count, which is then kept (seed 004).
    ///
    /// # Errors
    /// [`Unpublished`] without crons or without a decision.
    pub fn cron(&self) -> Result<i32, Unpublished> {
        let decision = self.decision()?;
        let spec = &self.object.spec;
        if spec.crons.iter().flatten().next().is_none() {
            return Err(Unpublished::NoCrons {
                object: self.name(),
            });
        }
        let has_metrics = spec.metrics.iter().flatten().next().is_some();
        let crons = CronInputs {
            open: open_count(decision).map(Replicas::from_i32),
            min: Replicas::from_i32(spec.min_replicas.unwrap_or(1)),
            current: decision.current_replicas.map(Replicas::from_i32),
            // With a prediction there is the cpu metric that is forecast.
            has_metrics: has_metrics || spec.prediction.is_some(),
        };
        Ok(crons.count().as_i32())
    }

    /// The largest `targetReplicas` of the open cron windows; none while all are closed.
    ///
    /// # Errors
    /// As [`Published::cron`].
    pub fn open_windows(&self) -> Result<Option<i32>, Unpublished> {
        // For its errors only: its count is never absent, because it falls back to the minimum.
        self.cron()?;
        Ok(open_count(self.decision()?))
    }

    /// The floor: the count that forecasts and cron windows require together, after their windows and policies. Absent
    /// while they require nothing.
    ///
    /// # Errors
    /// [`Unpublished`] without a decision.
    pub fn floor(&self) -> Result<Option<i32>, Unpublished> {
        Ok(self.decision()?.floor)
    }

    /// The floor while a forecast or a cron window asks for a replica, or has asked for more than the minimum within the
    /// stabilization window; none otherwise. Unlike the minimum in [`Published::floor`], it never keeps a workload from
    /// zero.
    ///
    /// # Errors
    /// As [`Published::floor`], and if something asks for a replica while the decision has no floor.
    pub fn required(&self) -> Result<Option<i32>, Unpublished> {
        let decision = self.decision()?;
        let minimum = self.object.spec.min_replicas.unwrap_or(1);
        let asked = decision.proposals.iter().flatten().any(|proposal| {
            proposal.source != Source::Observed
                && proposal.replicas.is_some_and(|replicas| replicas > 0)
        });
        match decision.floor {
            None if asked => Err(Unpublished::NoFloor {
                object: self.name(),
            }),
            floor => Ok(floor.filter(|floor| asked || *floor > minimum)),
        }
    }

    /// The metrics that are forecast, whether they have a value now or not.
    pub fn identifiers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.stored()
            .into_iter()
            .flat_map(|decision| proposals(decision, Source::Forecast))
            .map(|proposal| proposal.name.as_str())
    }

    /// The time at which the values were decided.
    ///
    /// # Errors
    /// [`Unpublished`] without a decision, or if it is too old.
    pub fn decided_at(&self) -> Result<Timestamp, Unpublished> {
        self.dated().map(|(_, at)| at)
    }

    fn decision(&self) -> Result<&'a DecisionStatus, Unpublished> {
        self.dated().map(|(decision, _)| decision)
    }

    fn dated(&self) -> Result<(&'a DecisionStatus, Timestamp), Unpublished> {
        let (decision, at) = self
            .stored()
            .and_then(|decision| Some((decision, decision.time.as_ref()?.0)))
            .ok_or_else(|| Unpublished::Undecided {
                object: self.name(),
            })?;
        if self.now.duration_since(at) > STALE_AFTER {
            return Err(Unpublished::Stale {
                object: self.name(),
                at,
            });
        }
        Ok((decision, at))
    }

    fn stored(&self) -> Option<&'a DecisionStatus> {
        self.object.status.as_ref()?.decision.as_ref()
    }

    fn name(&self) -> String {
        let meta = &self.object.metadata;
        format!(
            "EffectiveHorizontalPodAutoscaler {}/{}",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        )
    }
}

/// The identifier of a metric as the value of a label: the same text where it is one. Otherwise the characters that a
/// value cannot have are replaced, and a hash of the identifier follows.
pub fn label_value(identifier: &str) -> String {
    let ends = [identifier.chars().next(), identifier.chars().last()];
    if identifier.len() <= LABEL_VALUE_MAX
        && identifier.chars().all(is_inner)
        && ends.iter().flatten().all(char::is_ascii_alphanumeric)
    {
        return identifier.to_owned();
    }
    let hash = format!("-{:016x}", fnv1a(identifier.as_bytes()));
    let kept: String = identifier
        .chars()
        .map(|c| if is_inner(c) { c } else { '-' })
        .take(LABEL_VALUE_MAX - hash.len())
        .collect();
    // A label value must begin with a letter or digit; that it ends with one is due to the hash.
    (kept + &hash)
        .trim_start_matches(|c: char| !c.is_ascii_alphanumeric())
        .to_owned()
}

/// True if a character may stand within the value of a label.
fn is_inner(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// The name under which a KEDA trigger of ours is known: the source, the autoscaler, and the metric of a forecast.
///
/// KEDA replaces some characters in the names of its own scalers' metrics; they are replaced here in the same way.
pub fn keda_metric_name(source: KedaSource, autoscaler: &str, metric: Option<&str>) -> String {
    let mut parts = vec!["foretide", source.as_str(), autoscaler];
    parts.extend(metric);
    // The characters of KEDA's `NormalizeString`.
    parts.join("-").replace(['/', '.', ':', '%', '(', ')'], "-")
}

/// True if KEDA gave this name to the metric of a trigger whose metric we call `ours`: `s0-` and so on, by the position
/// of the trigger.
pub fn is_of_keda_trigger(name: &str, ours: &str) -> bool {
    let parts = name.strip_prefix('s').and_then(|rest| rest.split_once('-'));
    let Some((position, rest)) = parts else {
        return false;
    };
    let is_number = position.bytes().all(|byte| byte.is_ascii_digit());
    !position.is_empty() && is_number && rest == ours
}

/// The largest count of the sources that are not of metrics: that of the open cron windows.
fn open_count(decision: &DecisionStatus) -> Option<i32> {
    let proposals = decision.proposals.iter().flatten();
    proposals
        .filter(|asked| !asked.source.is_of_metrics())
        .filter_map(|asked| asked.replicas)
        .max()
}

/// The amounts of a forecast. One without a count has no value that may be acted on.
fn amounts(forecast: &ProposalStatus) -> Option<Amounts> {
    forecast.replicas?;
    // The autoscaler that reads it has a rule of its own, so it is told the peak and not what our count is for.
    let peak = forecast
        .forecast
        .as_ref()
        .and_then(|it| number(it.peak.as_deref()));
    let total = peak.or_else(|| number(forecast.value.as_deref()))?;
    Amounts::of(total, number(forecast.target.as_deref())?)
}

fn number(text: Option<&str>) -> Option<f64> {
    text?.parse().ok()
}

fn proposals(decision: &DecisionStatus, source: Source) -> impl Iterator<Item = &ProposalStatus> {
    decision
        .proposals
        .iter()
        .flatten()
        .filter(move |proposal| proposal.source == source)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-03-01T10:00:00Z";

    fn object(spec: &Value, decision: &Value) -> EffectiveHorizontalPodAutoscaler {
        let mut object = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2,
                "maxReplicas": 100,
            },
            "status": {"decision": {"time": "2026-03-01T09:50:00Z", "currentReplicas": 7}},
        });
        let merge = |into: &mut Value, from: &Value| {
            for (field, value) in from.as_object().unwrap() {
                into[field] = value.clone();
            }
        };
        merge(&mut object["spec"], spec);
        merge(&mut object["status"]["decision"], decision);
        serde_json::from_value(object).unwrap()
    }

    fn published(object: &EffectiveHorizontalPodAutoscaler) -> Published<'_> {
        Published::of(object, NOW.parse().unwrap())
    }

    fn forecast(fields: &Value) -> Result<(String, String), String> {
        let mut proposal =
            json!({"source": "forecast", "name": "resource.cpu", "reason": "Forecast"});
        for (field, value) in fields.as_object().unwrap() {
            proposal[field] = value.clone();
        }
        let observed = json!({
            "source": "observed", "name": "resource.cpu", "replicas": 1, "value": "7", "target": "8",
        });
        let object = object(&json!({}), &json!({"proposals": [observed, proposal]}));
        let found = published(&object).forecast("resource.cpu");
        found
            .map(|found| (found.total.to_string(), found.per_pod.to_string()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_peak_is_published_and_not_what_the_count_is_for() {
        for (forecast_peak, total) in [(json!({"peak": "1.2"}), "1200m"), (json!({}), "900m")] {
            let found = forecast(&json!({
                "replicas": 9, "value": "0.9", "target": "0.1", "forecast": forecast_peak,
            }));
            assert_eq!(found, Ok((total.to_owned(), "100m".to_owned())));
        }
    }

    #[test]
    fn a_forecast_without_a_count_is_not_published() {
        let subject = "EffectiveHorizontalPodAutoscaler shop/web has no forecast of resource.cpu: ";
        for (fields, reason) in [
            (
                json!({"value": "0.9", "target": "0.1", "reason": "Expired"}),
                "Expired",
            ),
            (json!({"replicas": 9, "target": "0.1"}), "Forecast"),
            (
                json!({"replicas": 9, "value": "NaN", "target": "0.1"}),
                "Forecast",
            ),
            (
                json!({"name": "resource.memory", "replicas": 9}),
                "it is not forecast",
            ),
        ] {
            assert_eq!(forecast(&fields), Err(format!("{subject}{reason}")));
        }
    }

    #[test]
    fn crons_give_the_largest_open_window_else_the_minimum_else_the_current_count() {
        let window =
            |replicas: Option<i32>| json!({"source": "cron", "name": "c", "replicas": replicas});
        let crons = json!([{"name": "c"}]);
        let metrics = json!([{"type": "Resource"}]);
        let forecast = json!({"source": "forecast", "name": "resource.cpu", "replicas": 50});
        let alone = json!({"crons": crons});
        let with_metrics = json!({"crons": crons, "metrics": metrics});
        let with_prediction = json!({"crons": crons, "prediction": {}});
        for (spec, proposals, count) in [
            (
                &alone,
                json!([window(Some(10)), window(Some(80)), window(None)]),
                80,
            ),
            (&with_metrics, json!([window(Some(10)), forecast]), 10),
            (&with_metrics, json!([window(Some(1))]), 2),
            (&with_metrics, json!([window(None)]), 2),
            (&with_prediction, json!([window(None)]), 2),
            (&alone, json!([window(None)]), 7),
        ] {
            let object = object(spec, &json!({"proposals": proposals}));
            assert_eq!(published(&object).cron(), Ok(count), "{spec} {proposals}");
        }
        let without = object(&with_metrics, &json!({}));
        assert_eq!(published(&without).cron(), Ok(2));
        let none = object(&json!({}), &json!({}));
        let refused = published(&none).cron().unwrap_err().to_string();
        assert_eq!(
            refused,
            "EffectiveHorizontalPodAutoscaler shop/web has no crons"
        );
    }

    #[test]
    fn the_floor_is_required_while_something_asks_for_it_or_holds_it() {
        let forecast = |replicas: Option<i32>| json!({"source": "forecast", "name": "resource.cpu", "replicas": replicas});
        let observed = json!({"source": "observed", "name": "resource.cpu", "replicas": 9});
        for (proposals, floor, required) in [
            (json!([forecast(Some(3)), observed]), Some(3), Some(3)),
            (json!([forecast(Some(1))]), Some(2), Some(2)),
            (json!([forecast(Some(0))]), Some(2), None),
            (json!([forecast(Some(0))]), Some(3), Some(3)),
            (json!([forecast(None), observed]), Some(5), Some(5)),
            (json!([observed]), Some(2), None),
            (json!([observed]), None, None),
        ] {
            let decision = json!({"proposals": proposals, "floor": floor});
            let object = object(&json!({}), &decision);
            assert_eq!(published(&object).required(), Ok(required), "{decision}");
        }
        let decision = json!({"proposals": [forecast(Some(3))]});
        let object = object(&json!({}), &decision);
        let no_floor = Unpublished::NoFloor {
            object: "EffectiveHorizontalPodAutoscaler shop/web".to_owned(),
        };
        assert_eq!(published(&object).required(), Err(no_floor));
    }

    #[test]
    fn a_status_that_is_too_old_publishes_nothing() {
        let crons = json!({"crons": [{"name": "c"}]});
        let at = |time: &str| object(&crons, &json!({"time": time, "floor": 4}));
        let last = at("2026-03-01T09:45:00Z");
        assert_eq!(published(&last).floor(), Ok(Some(4)));
        let old = at("2026-03-01T09:44:59Z");
        let stale = Unpublished::Stale {
            object: "EffectiveHorizontalPodAutoscaler shop/web".to_owned(),
            at: "2026-03-01T09:44:59Z".parse().unwrap(),
        };
        assert_eq!(published(&old).floor(), Err(stale.clone()));
        assert_eq!(published(&old).cron(), Err(stale.clone()));
        assert_eq!(published(&old).forecast("resource.cpu"), Err(stale));
        let undecided = object(&crons, &json!({"time": null}));
        let error = published(&undecided).floor().unwrap_err().to_string();
        assert_eq!(
            error,
            "EffectiveHorizontalPodAutoscaler shop/web has no decision yet"
        );
    }

    #[test]
    fn an_identifier_that_is_no_label_value_is_replaced_by_one() {
        for same in ["resource.cpu", "pods.http_requests", "a", ""] {
            assert_eq!(label_value(same), same);
        }
        let long = format!("external.{}", "a".repeat(80));
        for other in [
            "external.pubsub.googleapis.com|size",
            "pods.x-",
            "-",
            &*long,
        ] {
            let value = label_value(other);
            assert_ne!(value, other);
            assert!(value.len() <= 63, "{value}");
            let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            assert!(value.chars().all(inner), "{value}");
            let ends = [value.chars().next(), value.chars().last()];
            assert!(
                ends.iter().flatten().all(char::is_ascii_alphanumeric),
                "{value}"
            );
        }
        let size = label_value("external.pubsub.googleapis.com|size");
        assert!(
            size.starts_with("external.pubsub.googleapis.com-size-"),
            "{size}"
        );
        let proposal = json!({
            "source": "forecast", "name": "external.pubsub.googleapis.com|size",
            "replicas": 3, "value": "3", "target": "1",
        });
        let object = object(&json!({}), &json!({"proposals": [proposal]}));
        assert!(published(&object).forecast(&size).is_ok());
    }

    #[test]
    fn the_metric_of_a_keda_trigger_is_recognized_by_its_name() {
        let floor = keda_metric_name(KedaSource::Floor, "web.v2", None);
        assert_eq!(floor, "foretide-floor-web-v2");
        let metric = Some("container-resource.cpu.app");
        assert_eq!(
            keda_metric_name(KedaSource::Forecast, "web", metric),
            "foretide-forecast-web-container-resource-cpu-app"
        );
        assert_eq!(
            keda_metric_name(KedaSource::Cron, "a", None),
            "foretide-cron-a"
        );
        for (name, is_ours) in [
            ("s0-foretide-floor-web-v2", true),
            ("s12-foretide-floor-web-v2", true),
            ("s-foretide-floor-web-v2", false),
            ("sx-foretide-floor-web-v2", false),
            ("foretide-floor-web-v2", false),
            ("s0-foretide-floor-web", false),
            ("s0-foretide-floor-web-v2-cpu", false),
            ("s0-cron", false),
            ("", false),
        ] {
            assert_eq!(is_of_keda_trigger(name, &floor), is_ours, "{name}");
        }
    }

    #[test]
    fn identifiers_name_every_forecast_metric() {
        let proposals = json!([
            {"source": "observed", "name": "resource.cpu"},
            {"source": "forecast", "name": "resource.cpu", "replicas": 3},
            {"source": "forecast", "name": "pods.requests"},
        ]);
        let object = object(&json!({}), &json!({"proposals": proposals}));
        let found: Vec<_> = published(&object).identifiers().collect();
        assert_eq!(found, ["resource.cpu", "pods.requests"]);
    }
}
