//! The metadata of a trigger: the autoscaler and the source that it reads.
//!
//! ```text
//! {scalerAddress: ..., autoscaler: web, source: forecast, metric: resource.cpu}, ScaledObject in namespace shop
//!     -> autoscaler shop/web, source forecast of resource.cpu
//! ```

use std::collections::HashMap;

use super::proto::ScaledObjectRef;
use foretide_api::published::{KEDA_AUTOSCALER, KedaSource};

const SOURCE: &str = "source";
const METRIC: &str = "metric";
const NAMESPACE: &str = "namespace";

/// Keys that KEDA uses itself and sends along.
const OF_KEDA: [&str; 7] = [
    "scalerAddress",
    "enableTLS",
    "unsafeSsl",
    "tlsCertFile",
    "caCert",
    "tlsClientCert",
    "tlsClientKey",
];

/// The autoscaler and the source that a trigger names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trigger {
    /// Namespace of the `ScaledObject` and of the autoscaler.
    pub namespace: String,
    /// Name of the autoscaler.
    pub autoscaler: String,
    pub source: KedaSource,
    /// The metric of a forecast, such as `resource.cpu`; absent for the only one.
    pub metric: Option<String>,
}

/// Reason for which the metadata of a trigger are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTrigger {
    #[error("expected a ScaledObject with a namespace")]
    Object,
    #[error(
        "trigger metadata autoscaler is missing: expected the name of an EffectiveHorizontalPodAutoscaler in namespace \
         {namespace}"
    )]
    Autoscaler { namespace: String },
    #[error(
        "trigger metadata namespace is not supported: a trigger reads an EffectiveHorizontalPodAutoscaler of its own \
         namespace, {namespace}; remove it"
    )]
    Namespace { namespace: String },
    #[error("trigger metadata source is {value:?}: expected floor, forecast or cron")]
    Source { value: String },
    #[error(
        "trigger metadata metric is for source forecast, and the source is {}: remove it, or set source: forecast",
        given.as_str()
    )]
    Metric { given: KedaSource },
    #[error("trigger metadata {key:?} is unknown: expected autoscaler, source or metric")]
    Unknown { key: String },
}

// === impl Trigger ===

impl Trigger {
    /// The trigger of a `ScaledObject`.
    pub fn parse(object: &ScaledObjectRef) -> Result<Self, InvalidTrigger> {
        let namespace = object.namespace.clone();
        if namespace.is_empty() {
            return Err(InvalidTrigger::Object);
        }
        let metadata = &object.scaler_metadata;
        check_keys(metadata, &namespace)?;
        let value = |key: &str| metadata.get(key).filter(|value| !value.is_empty());
        let Some(autoscaler) = value(KEDA_AUTOSCALER).cloned() else {
            return Err(InvalidTrigger::Autoscaler { namespace });
        };
        let source = value(SOURCE).map_or(Ok(KedaSource::Floor), |text| source(text))?;
        let metric = value(METRIC).cloned();
        if metric.is_some() && source != KedaSource::Forecast {
            return Err(InvalidTrigger::Metric { given: source });
        }
        Ok(Self {
            namespace,
            autoscaler,
            source,
            metric,
        })
    }
}

fn check_keys(metadata: &HashMap<String, String>, namespace: &str) -> Result<(), InvalidTrigger> {
    if metadata.contains_key(NAMESPACE) {
        let namespace = namespace.to_owned();
        return Err(InvalidTrigger::Namespace { namespace });
    }
    let unknown = metadata.keys().filter(|key| {
        ![KEDA_AUTOSCALER, SOURCE, METRIC].contains(&&***key) && !OF_KEDA.contains(&&***key)
    });
    // The first in alphabetical order, so that the message is always the same.
    match unknown.min() {
        None => Ok(()),
        Some(key) => Err(InvalidTrigger::Unknown { key: key.clone() }),
    }
}

fn source(text: &str) -> Result<KedaSource, InvalidTrigger> {
    KedaSource::ALL
        .iter()
        .copied()
        .find(|source| source.as_str() == text)
        .ok_or_else(|| InvalidTrigger::Source {
            value: text.chars().take(64).collect(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(metadata: &[(&str, &str)]) -> Result<Trigger, String> {
        let pairs = metadata.iter();
        let owned = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let object = ScaledObjectRef {
            name: "web-scaler".to_owned(),
            namespace: "shop".to_owned(),
            scaler_metadata: owned.collect(),
        };
        Trigger::parse(&object).map_err(|error| error.to_string())
    }

    #[test]
    fn metadata_names_an_autoscaler_of_the_same_namespace_and_a_source() {
        for (more, source, metric) in [
            (vec![], KedaSource::Floor, None),
            (
                vec![("source", "floor"), ("metric", "")],
                KedaSource::Floor,
                None,
            ),
            (vec![("source", "cron")], KedaSource::Cron, None),
            (vec![("source", "forecast")], KedaSource::Forecast, None),
            (
                vec![("source", "forecast"), ("metric", "pods.orders")],
                KedaSource::Forecast,
                Some("pods.orders"),
            ),
        ] {
            let of_keda = [("scalerAddress", "foretide:9000"), ("enableTLS", "true")];
            let metadata = [&[("autoscaler", "web")], &of_keda[..], &more].concat();
            let trigger = Trigger {
                namespace: "shop".to_owned(),
                autoscaler: "web".to_owned(),
                source,
                metric: metric.map(str::to_owned),
            };
            assert_eq!(parse(&metadata), Ok(trigger), "{more:?}");
        }
    }

    #[test]
    fn other_metadata_is_refused_with_what_is_expected() {
        for (metadata, message) in [
            (
                &[("source", "cron")][..],
                "trigger metadata autoscaler is missing: expected the name of an EffectiveHorizontalPodAutoscaler in \
                 namespace shop",
            ),
            (
                &[("autoscaler", "web"), ("namespace", "other")],
                "trigger metadata namespace is not supported: a trigger reads an EffectiveHorizontalPodAutoscaler of \
                 its own namespace, shop; remove it",
            ),
            (
                &[("autoscaler", "web"), ("source", "Floor")],
                "trigger metadata source is \"Floor\": expected floor, forecast or cron",
            ),
            (
                &[("autoscaler", "web"), ("metric", "resource.cpu")],
                "trigger metadata metric is for source forecast, and the source is floor: remove it, or set source: \
                 forecast",
            ),
            (
                &[("autoscaler", "web"), ("origin", "cron"), ("zone", "")],
                "trigger metadata \"origin\" is unknown: expected autoscaler, source or metric",
            ),
        ] {
            assert_eq!(parse(metadata), Err(message.to_owned()));
        }
        let nowhere = Trigger::parse(&ScaledObjectRef::default());
        assert_eq!(nowhere, Err(InvalidTrigger::Object));
    }
}
