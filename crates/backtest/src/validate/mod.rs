//! Problems of manifests, each with file, line and field.
//!
//! Three checks, each only if the previous one passes: the validation of the API server, the translation of a spec into
//! the domain, and the parts that the controller ignores or the API server refuses in the child, with the lint of cron
//! windows and the queries in annotations. Refused or ignored parts are errors; possible mistakes are warnings.

mod child;
mod fleet;
mod kind;

use std::sync::Arc;

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerSpec, FederatedHPA, Rules,
    TimeSeriesPrediction, Violation,
};
use foretide_domain::{
    cron::{Finding, Zone, lint},
    division::Division,
    hpa::Settings,
    words,
    workload::{SpecPart, Workload},
};
use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use self::kind::DocumentKind;
use crate::manifest::{Document, Location};
use foretide_api::{
    autoscaler::Autoscaler,
    validation::{self, FleetSpec, Invalid},
};

/// The default sync period of the controller, for which an observation of a fleet is valid.
const SYNC_PERIOD: SignedDuration = SignedDuration::from_secs(15);

/// One finding about a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Place of the field, or of the object.
    #[serde(flatten)]
    pub place: Location,
    /// Severity of the finding.
    pub severity: Severity,
    /// Field, expected and found value, and advice.
    pub message: String,
}

words! {
    /// The severity of a finding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Severity {
        /// The object is refused.
        Error = "error",
        /// The object is accepted, and something in it is ignored or may be a mistake.
        Warning = "warning",
        /// Not a problem, such as an object of another kind that may be taken for Foretide's.
        Note = "note",
    }
}

/// Compiled rules of Foretide's kinds.
#[derive(Debug)]
pub struct Validator<'a> {
    ehpa: Rules,
    fdhpa: Rules,
    tsp: Rules,
    local: &'a Zone,
    now: Timestamp,
}

/// The result for one document.
#[derive(Debug)]
pub struct Validation {
    /// Subject of the result.
    pub subject: Subject,
    /// The autoscaler with its spec, if it is one that can be acted on.
    pub accepted: Option<Accepted>,
    /// Findings, in the order of their lines.
    pub diagnostics: Vec<Diagnostic>,
}

/// Subject of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An autoscaler.
    Autoscaler,
    /// A configuration of the controller.
    Configuration,
    /// A `TimeSeriesPrediction`.
    Prediction,
    /// An object of this kind, which is not checked.
    Skipped(String),
    /// An unknown object, which is an error.
    Unknown,
}

/// An autoscaler that can be acted on.
#[derive(Debug)]
pub enum Accepted {
    /// An autoscaler of one cluster.
    Ehpa(Arc<EffectiveHorizontalPodAutoscaler>, Box<Workload>),
    /// An autoscaler of many clusters.
    Fdhpa(Arc<FederatedHPA>, Box<FleetSpec>),
}

// === impl Accepted ===

impl Accepted {
    /// Workload of the spec; for a fleet, that of all clusters together.
    pub fn workload(&self) -> &Workload {
        match self {
            Self::Ehpa(_, workload) => workload,
            Self::Fdhpa(_, fleet) => &fleet.workload,
        }
    }

    /// The object; one without a namespace is in the namespace that kubectl takes.
    pub fn autoscaler(&self) -> Autoscaler {
        fn in_default<K: Resource + Clone>(object: &Arc<K>) -> Arc<K> {
            let mut object = Arc::clone(object);
            let namespace = &mut Arc::make_mut(&mut object).meta_mut().namespace;
            namespace.get_or_insert_with(|| "default".to_owned());
            object
        }
        match self {
            Self::Ehpa(ehpa, _) => Autoscaler::Effective(in_default(ehpa)),
            Self::Fdhpa(fdhpa, _) => Autoscaler::Federated(in_default(fdhpa)),
        }
    }

    fn spec(&self) -> &EffectiveHorizontalPodAutoscalerSpec {
        match self {
            Self::Ehpa(ehpa, _) => &ehpa.spec,
            Self::Fdhpa(fdhpa, _) => &fdhpa.spec.autoscaling,
        }
    }
}

// === impl Validator ===

impl<'a> Validator<'a> {
    /// A validator of specs whose zone `Local` is `local`, for the windows after `now`.
    pub fn new(local: &'a Zone, now: Timestamp) -> Self {
        Self {
            ehpa: Rules::of::<EffectiveHorizontalPodAutoscaler>(),
            fdhpa: Rules::of::<FederatedHPA>(),
            tsp: Rules::of::<TimeSeriesPrediction>(),
            local,
            now,
        }
    }

    /// All findings about one document, in the order of its lines.
    pub fn validate(&self, document: &Document) -> Validation {
        let mut validation = self.by_kind(document);
        let order = |diagnostic: &Diagnostic| (diagnostic.place.line, diagnostic.message.clone());
        validation.diagnostics.sort_by_cached_key(order);
        validation
    }

    fn by_kind(&self, document: &Document) -> Validation {
        let (subject, diagnostics) = match DocumentKind::of(document) {
            DocumentKind::Ehpa => {
                return self.autoscaler(document, &self.ehpa, |ehpa| self.one(ehpa));
            }
            DocumentKind::Fdhpa => {
                return self.autoscaler(document, &self.fdhpa, |fdhpa| self.fleet(fdhpa));
            }
            DocumentKind::Tsp => (Subject::Prediction, self.prediction(document)),
            DocumentKind::Other { kind, note } => {
                let note = note.map(|note| Diagnostic::new(document.place(), Severity::Note, note));
                (Subject::Skipped(kind), note.into_iter().collect())
            }
            DocumentKind::Invalid { field, message } => {
                let place = document.find(field);
                (
                    Subject::Unknown,
                    vec![Diagnostic::new(place, Severity::Error, message)],
                )
            }
        };
        Validation::without_autoscaler(subject, diagnostics)
    }

    fn prediction(&self, document: &Document) -> Vec<Diagnostic> {
        let value = document.value();
        let mut found = refused(document, &self.tsp.check(value));
        let mut owners = value
            .pointer("/metadata/ownerReferences")
            .and_then(|owners| owners.as_array())
            .into_iter()
            .flatten();
        if found.is_empty() && !owners.any(|owner| owner["controller"] == true) {
            let message = "no autoscaler owns this TimeSeriesPrediction, so the controller does not update it (reason \
                           NotManaged); set spec.prediction of an autoscaler to get a forecast";
            found.push(Diagnostic::new(
                document.place(),
                Severity::Warning,
                message,
            ));
        }
        found
    }

    fn one(&self, ehpa: EffectiveHorizontalPodAutoscaler) -> Result<Accepted, Invalid> {
        let workload = validation::workload(&ehpa, self.local)?;
        Ok(Accepted::Ehpa(Arc::new(ehpa), Box::new(workload)))
    }

    fn fleet(&self, fdhpa: FederatedHPA) -> Result<Accepted, Invalid> {
        let fleet = validation::fleet(&fdhpa, self.local, SYNC_PERIOD, &Settings::default())?;
        Ok(Accepted::Fdhpa(Arc::new(fdhpa), Box::new(fleet)))
    }

    fn autoscaler<K: DeserializeOwned>(
        &self,
        document: &Document,
        rules: &Rules,
        translate: impl Fn(K) -> Result<Accepted, Invalid>,
    ) -> Validation {
        let value = document.value();
        let diagnostics = refused(document, &rules.check(value));
        if !diagnostics.is_empty() {
            return Validation::without_autoscaler(Subject::Autoscaler, diagnostics);
        }
        let diagnostics = match K::deserialize(value).map(translate) {
            Ok(Ok(accepted)) => {
                return Validation {
                    subject: Subject::Autoscaler,
                    diagnostics: self.diagnostics(document, &accepted),
                    accepted: Some(accepted),
                };
            }
            Ok(Err(Invalid(violations))) => violations
                .iter()
                .map(|violation| {
                    let place = document.find(&violation.field);
                    Diagnostic::new(place, Severity::Error, violation.to_string())
                })
                .collect(),
            Err(error) => {
                let message = format!("cannot be read: {error}");
                vec![Diagnostic::new(document.place(), Severity::Error, message)]
            }
        };
        Validation::without_autoscaler(Subject::Autoscaler, diagnostics)
    }

    fn diagnostics(&self, document: &Document, accepted: &Accepted) -> Vec<Diagnostic> {
        let mut diagnostics = problems(document, accepted);
        diagnostics.extend(refused(document, &child::violations(accepted.spec())));
        diagnostics.extend(self.lints(document, accepted));
        diagnostics.extend(undivided(document, accepted.workload()));
        if let Accepted::Fdhpa(fdhpa, fleet) = accepted {
            let each = fleet::diagnostics(fdhpa, fleet).into_iter();
            diagnostics.extend(each.map(|(path, severity, message)| {
                Diagnostic::new(document.find(&path), severity, message)
            }));
        }
        diagnostics
    }

    fn lints(&self, document: &Document, accepted: &Accepted) -> Vec<Diagnostic> {
        let workload = accepted.workload();
        let findings = lint(&workload.floor.windows, workload.bounds, self.now).into_iter();
        let each = findings.map(
            |Finding {
                 cron,
                 lint,
                 message,
             }| {
                let place = document.find(&cron_path(accepted.spec(), &cron));
                let severity = if lint.is_error() {
                    Severity::Error
                } else {
                    Severity::Warning
                };
                let message = format!("cron {cron}: {message} [{}]", lint.as_str());
                Diagnostic::new(place, severity, message)
            },
        );
        each.collect()
    }
}

// === impl Validation ===

impl Validation {
    /// The result for something that is no valid autoscaler.
    pub fn without_autoscaler(subject: Subject, diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            subject,
            accepted: None,
            diagnostics,
        }
    }

    /// Returns whether no part is refused or ignored.
    pub fn is_valid(&self) -> bool {
        let mut severities = self.diagnostics.iter().map(|found| found.severity);
        severities.all(|severity| severity != Severity::Error)
    }
}

// === impl Diagnostic ===

impl Diagnostic {
    /// A finding.
    pub fn new(place: Location, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            place,
            severity,
            message: message.into(),
        }
    }
}

fn refused(document: &Document, violations: &[Violation]) -> Vec<Diagnostic> {
    let each = violations.iter().map(|violation| {
        let place = document.find(&violation.field);
        let meant = fleet::meant(&violation.field).map(|name| format!("; use {name}"));
        let message = format!("{violation}{}", meant.unwrap_or_default());
        Diagnostic::new(place, Severity::Error, message)
    });
    each.collect()
}

/// The parts of a spec that are left out: crons, or fields with a default in their place.
fn problems(document: &Document, accepted: &Accepted) -> Vec<Diagnostic> {
    let each = accepted.workload().problems.iter().map(|problem| {
        let path = match &problem.part {
            SpecPart::Cron(name) => cron_path(accepted.spec(), name),
            SpecPart::Field(path) => path.clone(),
        };
        let message = format!("{}; ignored [{}]", problem.message, problem.reason);
        Diagnostic::new(document.find(&path), Severity::Error, message)
    });
    each.collect()
}

/// Warns of the metrics that have no forecast until their totals are seen to divide among pods.
fn undivided(document: &Document, workload: &Workload) -> Vec<Diagnostic> {
    workload.metrics.iter().enumerate().filter(|(_, metric)| !Division::presumed(metric).divides()).filter(|_| workload.floor.prediction.is_some()).map(|(index, metric)| {
        let field = format!("spec.metrics[{index}]");
        let message = format!(
            "{field}: no forecast of {} is made until the controller has seen its total stay the same when pods come and \
             go; until then only its current value counts, as in an HPA",
            metric.identifier()
        );
        Diagnostic::new(document.find(&field), Severity::Warning, message)
    }).collect()
}

/// Path of the cron of a name.
fn cron_path(spec: &EffectiveHorizontalPodAutoscalerSpec, name: &str) -> String {
    spec.crons
        .iter()
        .flatten()
        .map(|cron| cron.name.as_deref().unwrap_or_default())
        .position(|n| n == name)
        .map_or_else(|| "spec.crons".to_owned(), |i| format!("spec.crons[{i}]"))
}

/// Returns whether a document is of one of Foretide's kinds.
pub fn is<K: Resource<DynamicType = ()>>(document: &Document) -> bool {
    document.text("kind") == K::kind(&()) && document.group() == K::group(&())
}

#[cfg(test)]
mod tests;
