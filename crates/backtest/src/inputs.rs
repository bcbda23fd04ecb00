//! The inputs of an answer: one autoscaler among documents, and the histories of its metrics.
//!
//! Of several autoscalers one must be selected by name; of several metrics each history names its own. An autoscaler of
//! another kind is converted.

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use foretide_domain::{hpa::MetricSpec, workload::Workload};

use crate::{
    Error, conversion,
    manifest::Document,
    recording::History,
    validate::{self, Accepted, Severity, Validator},
};
use foretide_api::autoscaler::Autoscaler;

/// An autoscaler of one cluster and the workload that its spec describes.
#[derive(Clone, Debug)]
pub struct AutoscalerWorkload {
    /// The object.
    pub autoscaler: Autoscaler,
    /// The meaning of its spec.
    pub workload: Workload,
}

/// The kinds of autoscaler that an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoscalerKind {
    /// `EffectiveHorizontalPodAutoscaler`.
    Ehpa,
    /// Either of the two.
    Any,
    /// `FederatedHPA`.
    Fdhpa,
}

/// Reason for which documents and histories are not those of one autoscaler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// No document is an autoscaler of these kinds.
    #[error("no {0} in the manifests; add its file with -f")]
    None(&'static str),
    /// No autoscaler of these kinds has the name.
    #[error("no {0} {1} in the manifests")]
    NotNamed(&'static str, String),
    /// Several autoscalers are left, with these names.
    #[error("several autoscalers; select one with --name: {0}")]
    Several(String),
    /// The autoscaler is a fleet.
    #[error("expected an EffectiveHorizontalPodAutoscaler, found a FederatedHPA")]
    Fleet,
    /// The autoscaler is refused, for the errors on these lines.
    #[error("{0}")]
    Refused(String),
    /// There is no history of any of these metrics.
    #[error("--csv FILE or --prometheus URL is required: the history of {0}")]
    NoHistory(String),
    /// A history is given for a spec without metrics.
    #[error("--csv: the autoscaler has no metrics")]
    NoMetrics,
    /// One or two histories of a metric, which is none, or already has one, of the last ones.
    #[error("--csv: {0} of {1}; use --csv METRIC=FILE, where METRIC is one of {2}")]
    Unassigned(&'static str, String, String),
}

// === impl AutoscalerKind ===

impl AutoscalerKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Ehpa => {
                "EffectiveHorizontalPodAutoscaler, HorizontalPodAutoscaler or ScaledObject"
            }
            Self::Any => {
                "EffectiveHorizontalPodAutoscaler, FederatedHPA, HorizontalPodAutoscaler or ScaledObject"
            }
            Self::Fdhpa => "FederatedHPA",
        }
    }

    /// Returns whether a document is of these kinds.
    pub fn matches(self, document: &Document) -> bool {
        let one = validate::is::<EffectiveHorizontalPodAutoscaler>(document);
        let fleet = validate::is::<FederatedHPA>(document);
        (one && self != Self::Fdhpa) || (fleet && self != Self::Ehpa)
    }
}

// === impl InputError ===

impl InputError {
    /// The error for several autoscalers where one is needed.
    pub fn several(documents: &[&Document]) -> Self {
        let names: Vec<_> = documents.iter().map(|document| document.name()).collect();
        Self::Several(names.join(", "))
    }
}

/// The one autoscaler among the documents, or the one of a name.
///
/// # Errors
/// No autoscaler matches, or several do, or the one is not valid.
pub fn chosen(
    documents: &[Document],
    kind: AutoscalerKind,
    name: Option<&str>,
    validator: &Validator<'_>,
) -> Result<Accepted, Error> {
    let kinds = kind.name();
    let ours: Vec<_> = documents
        .iter()
        .filter(|document| {
            kind.matches(document) && name.is_none_or(|name| document.name() == name)
        })
        .collect();
    let document = match (ours.as_slice(), name) {
        ([document], _) => *document,
        ([], None) => return Err(InputError::None(kinds).into()),
        ([], Some(name)) => return Err(InputError::NotNamed(kinds, name.to_owned()).into()),
        (all, _) => return Err(InputError::several(all).into()),
    };
    let validation = validator.validate(document);
    if let Some(accepted) = validation.accepted {
        return Ok(accepted);
    }
    let refused = validation
        .diagnostics
        .iter()
        .filter(|remark| remark.severity == Severity::Error)
        .map(|remark| format!("{}: {}", remark.place, remark.message));
    Err(InputError::Refused(refused.collect::<Vec<_>>().join("\n")).into())
}

/// The one autoscaler of one cluster, for answers that do not support fleets.
///
/// # Errors
/// As [`chosen`].
pub fn chosen_one(
    documents: &[Document],
    name: Option<&str>,
    validator: &Validator<'_>,
) -> Result<AutoscalerWorkload, Error> {
    match chosen(documents, AutoscalerKind::Ehpa, name, validator)? {
        Accepted::Ehpa(ehpa, workload) => Ok(AutoscalerWorkload {
            autoscaler: Autoscaler::Effective(ehpa),
            workload: *workload,
        }),
        Accepted::Fdhpa(..) => Err(InputError::Fleet.into()),
    }
}

/// Adds the conversion of an autoscaler of another kind, if the documents have none of Foretide's; returns the
/// differences.
///
/// # Errors
/// Several can be converted, or the one cannot.
pub fn convert(documents: &mut Vec<Document>, name: Option<&str>) -> Result<Vec<String>, Error> {
    let named = |document: &&Document| name.is_none_or(|name| document.name() == name);
    let mut wanted = documents.iter().filter(named);
    if wanted.any(|document| AutoscalerKind::Any.matches(document)) {
        return Ok(Vec::new());
    }
    let others = documents.iter().filter(named);
    let others: Vec<_> = others.filter(|it| conversion::is_convertible(it)).collect();
    let document = match others[..] {
        [document] => document,
        [] => return Ok(Vec::new()),
        ref all => return Err(InputError::several(all).into()),
    };
    let made = conversion::converted(document)?;
    let object = Document::of(document.place().file, &made.object);
    documents.push(object);
    Ok(made.notes)
}

/// The given histories, each of the metric that it names, or else of the first one.
///
/// # Errors
/// A history is missing, given twice, of no metric of the workload, or cannot be read.
pub fn recorded<'a, T, E: From<Error>>(
    workload: &Workload,
    given: impl IntoIterator<Item = (Option<&'a str>, T)>,
    read: impl Fn(&str, T) -> Result<History, E>,
) -> Result<Vec<History>, E> {
    let known = identifiers(workload);
    let mut histories: Vec<History> = Vec::new();
    for (named, file) in given {
        let first = known.first().map(String::as_str);
        let Some(metric) = named.or(first) else {
            return Err(Error::from(InputError::NoMetrics).into());
        };
        let problem = if !known.iter().any(|known| known == metric) {
            "a history"
        } else if histories.iter().any(|history| history.metric == metric) {
            "two histories"
        } else {
            histories.push(read(metric, file)?);
            continue;
        };
        let (metric, known) = (metric.to_owned(), known.join(", "));
        return Err(Error::from(InputError::Unassigned(problem, metric, known)).into());
    }
    // A spec with cron windows only has no metrics, and needs no history.
    if histories.is_empty() && !known.is_empty() {
        return Err(Error::from(InputError::NoHistory(known.join(" or "))).into());
    }
    Ok(histories)
}

/// The identifiers of the metrics of a workload.
pub fn identifiers(workload: &Workload) -> Vec<String> {
    let metrics = workload.metrics.iter();
    metrics.map(MetricSpec::identifier).collect()
}

/// Removes the metrics without a history; returns one assumption for each.
pub fn without_history(workload: &mut Workload, histories: &[History]) -> Vec<String> {
    let (kept, left): (Vec<_>, Vec<_>) = workload
        .metrics
        .drain(..)
        .partition(|metric| histories.iter().any(|h| h.metric == metric.identifier()));
    workload.metrics = kept;
    left.iter()
        .map(MetricSpec::identifier)
        .map(|metric| format!("without {metric}: no history is given"))
        .collect()
}
