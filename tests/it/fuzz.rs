//! Reading an object never panics, no matter what it contains. Runs as a test here, and under a fuzzer with `cargo
//! bolero test`.

use foretide_api::validation;
use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use foretide_domain::{Requirement, Selector, cron::Zone, hpa::Settings};
use foretide_federate::Ledger;
use foretide_prometheus::{AdapterConfig, Metric, PromqlScope, QueryRequest, WorkloadRef};
use jiff::SignedDuration;
use serde_json::Value;

use crate::alter::alter;

/// A manifest with every field that has a meaning of its own, once.
const FULL: &str = include_str!("manifests/full.yaml");
/// A fleet with every field that has a meaning of its own, once.
const FULL_FLEET: &str = include_str!("manifests/full-fleet.yaml");

#[test]
fn ehpa_json() {
    fuzz(FULL, read);
}

#[test]
fn fdhpa_json() {
    fuzz(FULL_FLEET, read_fleet);
}

/// Reads values of the fuzzer, and complete objects that it alters.
fn fuzz(full: &str, read: fn(Value) -> bool) {
    let full: Value = serde_saphyr::from_str(full).unwrap();
    assert!(
        read(full.clone()),
        "the object that is changed must be valid itself"
    );
    bolero::check!()
        .with_iterations(3_000)
        .with_type::<Vec<u8>>()
        .for_each(|bytes| {
            if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
                read(value);
            }
            let mut object = full.clone();
            for change in bytes.chunks(8) {
                alter(&mut object, change);
            }
            read(object);
        });
}

/// Reads an object as the controller does, and the forecaster of its spec; returns whether it is valid.
fn read(object: Value) -> bool {
    let Ok(ehpa) = serde_json::from_value::<EffectiveHorizontalPodAutoscaler>(object) else {
        return false;
    };
    let workload = validation::workload(&ehpa, &Zone::utc());
    if let Some(prediction) = &ehpa.spec.prediction {
        let forecaster = validation::forecaster(prediction);
        drop(forecaster);
    }
    if let Err(invalid) = &workload {
        assert!(!invalid.to_string().is_empty());
    }
    workload.is_ok()
}

/// Reads a fleet as the controller does; returns whether it is valid.
fn read_fleet(object: Value) -> bool {
    let Ok(fdhpa) = serde_json::from_value::<FederatedHPA>(object) else {
        return false;
    };
    let period = SignedDuration::from_secs(15);
    match validation::fleet(&fdhpa, &Zone::utc(), period, &Settings::default()) {
        Ok(fleet) => {
            assert!(fleet.policy.bounds.min <= fleet.policy.bounds.max);
            assert!(fleet.policy.tolerance >= 0.0 && fleet.policy.settle > 0);
            true
        }
        Err(invalid) => {
            assert!(!invalid.to_string().is_empty());
            false
        }
    }
}

/// Rules of prometheus-adapter with every field that is read.
const RULES: &str = include_str!("manifests/prometheus-adapter.yaml");

#[test]
fn prometheus_adapter_rules() {
    let full: Value = serde_saphyr::from_str(RULES).unwrap();
    let config = AdapterConfig::read(RULES).unwrap();
    assert_eq!((config.errors(), config.len()), (&[][..], 5));
    bolero::check!()
        // Few, because each compiles the patterns of all rules.
        .with_iterations(300)
        .with_type::<Vec<u8>>()
        .for_each(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            ask(&text, &text);
            let mut rules = full.clone();
            for change in bytes.chunks(6) {
                alter(&mut rules, change);
            }
            ask(&rules.to_string(), &text);
        });
}

/// Reads a configuration, and its query for every type of metric.
fn ask(config: &str, word: &str) {
    let rules = match AdapterConfig::read(config) {
        Ok(rules) => rules,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let selector = Some(word);
    let metric = "requests_per_second";
    for metric in [
        Metric::Resource { name: "cpu" },
        Metric::ContainerResource {
            name: "memory",
            container: word,
        },
        Metric::Pods { metric, selector },
        Metric::Pods {
            metric: word,
            selector: None,
        },
        Metric::Object {
            metric,
            group: word,
            kind: word,
            name: word,
            selector: None,
        },
        Metric::External { metric, selector },
    ] {
        let workload = WorkloadRef {
            namespace: "shop",
            kind: "Deployment",
            name: word,
            pods: None,
        };
        let history = std::time::Duration::from_hours(24);
        for scope in [PromqlScope::Namespace, PromqlScope::Any] {
            if let Some(Err(error)) = rules.query(&QueryRequest {
                workload,
                metric,
                history,
                scope,
            }) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

/// A ledger in which every field has a value.
const LEDGER: &str = r#"{
    "generation": 3, "unassigned": 2, "landing": 10, "landingServed": 6, "optimized": 11, "shrunk": 12,
    "excessSince": 13, "idleSince": 14, "handover": 5, "woken": 15,
    "members": {
        "m1": {
            "tenure": 2, "min": 1, "max": 7, "written": 8,
            "standing": {"weight": 5, "priority": -2, "lo": 1, "hi": 9, "elastic": true},
            "capacity": 9, "weight": 3, "rank": 2, "mark": [4, 6, 900, 600], "local": [900, 600], "held": true,
            "moved": 1, "shrunk": 2, "saturatedSince": 3, "idleSince": 4, "woken": 5, "slept": 6,
            "needed": [900, 600], "recovered": 7, "tainted": 8
        },
        "m2": {"min": 0, "max": 0}
    }
}"#;

#[test]
fn ledger_json() {
    fuzz(LEDGER, read_ledger);
}

/// Reads the ledger of a fleet; an accepted one is written and read back as the same.
fn read_ledger(value: Value) -> bool {
    let Ok(ledger) = serde_json::from_value::<Ledger>(value) else {
        return false;
    };
    let text = serde_json::to_string(&ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
    true
}

#[test]
fn label_selectors() {
    bolero::check!()
        .with_iterations(4_000)
        .with_type::<Vec<u8>>()
        .for_each(|bytes| {
            select(&String::from_utf8_lossy(bytes));
            for bytes in bytes.chunks(4).take(64) {
                let piece = |byte: &u8| SELECTOR_PIECES[usize::from(*byte) % SELECTOR_PIECES.len()];
                select(&bytes.iter().map(piece).collect::<String>());
            }
        });
}

/// Parts of label selectors.
const SELECTOR_PIECES: &[&str] = &[
    "a",
    "b/c",
    "=",
    "=b",
    "!=c",
    "!",
    ",",
    " in (b,c)",
    " notin (b)",
    " notin (,c)",
    " in (",
    ")",
    " ",
    ">1",
    "<-7",
    "\u{e4}",
];

/// Parses a selector; an accepted one is written and parsed back as the same.
fn select(text: &str) {
    let selector = match text.parse::<Selector>() {
        Ok(selector) => selector,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let requirements = selector.requirements();
    assert_eq!(requirements.is_empty(), text.trim().is_empty(), "{text:?}");
    let written: Vec<_> = requirements.iter().map(requirement).collect();
    let written = written.join(",");
    assert_eq!(written.parse(), Ok(selector), "{text:?} as {written:?}");
}

fn requirement(one: &Requirement) -> String {
    match one {
        Requirement::Equal(key, value) => format!("{key}={value}"),
        Requirement::NotEqual(key, value) => format!("{key}!={value}"),
        Requirement::In(key, values) => format!("{key} in ({})", values.join(",")),
        Requirement::NotIn(key, values) => format!("{key} notin ({})", values.join(",")),
        Requirement::Exists(key) => key.clone(),
        Requirement::DoesNotExist(key) => format!("!{key}"),
        Requirement::GreaterThan(key, number) => format!("{key}>{number}"),
        Requirement::LessThan(key, number) => format!("{key}<{number}"),
    }
}
