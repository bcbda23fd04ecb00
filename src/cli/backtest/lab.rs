//! A back-test of texts instead of files, for the page's Lab.
//!
//! ```text
//! Experiment { manifests, histories, changes, ... } --run--> LabReport --json, html--> as the command prints them
//!                                                                      --manifest--> with the changes, to be applied
//! ```
//!
//! No file, cluster or server is read. The same inputs give exactly the figures of `foretide backtest`.

use std::ops::ControlFlow;

use foretide_backtest::{
    Error,
    inputs::{self, AutoscalerWorkload},
    manifest::{self, Document},
    recording::{History, parse_zone},
    report::{BacktestReport, Comparison},
    setup::{EvaluationOptions, Setup},
    sweep::Quantiles,
    template::{TemplateSource, parse_request},
};
use foretide_chart::{Chart, Scatter};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::cron::Zone;

use super::{page, parse_start_up};
use crate::cli::{
    context::CommandContext,
    history::parse_duration,
    output::{CommandOutput, Failure},
    recording,
};
use foretide_api::autoscaler::Autoscaler;
use foretide_page::api::{Changes, Experiment};

const MIB: usize = 1 << 20;
/// Size limit of all histories together, in bytes: 500 days of minutes of a metric, in RFC 3339.
const LARGEST_HISTORIES: usize = 24 * MIB;
/// Size limit of all manifests together, in bytes: as much as the API server accepts of one object.
const LARGEST_MANIFESTS: usize = 3 * MIB;

/// The result of an experiment.
#[derive(Debug)]
pub struct LabReport {
    report: BacktestReport,
    /// Missing and doubtful parts of the histories.
    pub notes: Vec<String>,
    zone: Option<Zone>,
}

/// Runs the experiment; `watch` is called with the fraction that is done, and may stop the run.
///
/// # Errors
/// A text is too large or cannot be used, an option is invalid, or `watch` stopped the run. Messages name the flags
/// of `foretide backtest` that the options stand for.
pub fn run(
    experiment: &Experiment,
    context: &CommandContext,
    watch: &mut dyn FnMut(f64) -> ControlFlow<()>,
) -> Result<LabReport, Failure> {
    require_size(experiment)?;
    let zone = parsed(experiment.shown_in.as_deref(), "shownIn", parse_zone)?;
    let mut documents = documents(experiment)?;
    let name = experiment.name.as_deref();
    let converted = inputs::convert(&mut documents, name)?;
    let chosen = inputs::chosen_one(&documents, name, &context.validator())?;
    let mut chosen = applied(&experiment.changes, chosen, context)?;
    let histories = recorded(experiment, &chosen)?;
    let missing = inputs::without_history(&mut chosen.workload, &histories);
    let requests = experiment
        .requests
        .iter()
        .map(|text| parse_request(text).map_err(flag("--request")))
        .collect::<Result<Vec<_>, _>>()?;
    let template = TemplateSource {
        documents: &documents,
        requests: &requests,
    };
    let mut setup = Setup::of(chosen, &histories, template, options(experiment)?)?;
    setup.note_input(converted, missing, true);
    let comparison = Comparison {
        with_plain: true,
        quantiles: quantiles(experiment)?,
        bounds: Vec::new(),
    };
    Ok(LabReport {
        report: BacktestReport::new(setup, &comparison, watch)?,
        notes: histories.into_iter().flat_map(|it| it.notes).collect(),
        zone,
    })
}

fn require_size(experiment: &Experiment) -> Result<(), Failure> {
    let manifests: usize = experiment.manifests.iter().map(|it| it.text.len()).sum();
    let histories: usize = experiment.histories.iter().map(|it| it.text.len()).sum();
    for (what, size, most) in [
        ("manifests", manifests, LARGEST_MANIFESTS),
        ("histories", histories, LARGEST_HISTORIES),
    ] {
        if size > most {
            let (size, most) = (size.div_ceil(MIB), most / MIB);
            return Err(Failure::invalid(format!(
                "the {what} have {size} MiB, expected at most {most} MiB"
            )));
        }
    }
    Ok(())
}

fn documents(experiment: &Experiment) -> Result<Vec<Document>, Failure> {
    let all = experiment
        .manifests
        .iter()
        .map(|it| manifest::parse(&it.name, &it.text))
        .collect::<Result<Vec<_>, _>>();
    Ok(all.map_err(Error::from)?.into_iter().flatten().collect())
}

fn recorded(experiment: &Experiment, chosen: &AutoscalerWorkload) -> Result<Vec<History>, Failure> {
    let zone = parsed(experiment.time_zone.as_deref(), "--time-zone", parse_zone)?;
    let given = experiment
        .histories
        .iter()
        .map(|it| (it.metric.as_deref(), it));
    inputs::recorded(&chosen.workload, given, |metric, it| {
        recording::parse(metric, &it.name, &it.text, zone.as_ref()).map_err(Failure::invalid)
    })
}

fn options(experiment: &Experiment) -> Result<EvaluationOptions, Failure> {
    if experiment.from.is_some() && experiment.warm_up.is_some() {
        return Err(Failure::usage(
            "--from and --warm-up exclude each other; give one of them",
        ));
    }
    let (start_up, warm_up) = (
        experiment.start_up.as_deref(),
        experiment.warm_up.as_deref(),
    );
    Ok(EvaluationOptions {
        start_up: parsed(start_up, "--start-up", parse_start_up)?,
        from: experiment.from,
        warm_up: parsed(warm_up, "--warm-up", parse_duration)?,
        until: experiment.until,
    })
}

fn quantiles(experiment: &Experiment) -> Result<Vec<f64>, Failure> {
    if experiment.sweep.is_empty() {
        return Ok(Vec::new());
    }
    let quantiles = Quantiles::try_from(experiment.sweep.clone()).map_err(flag("--sweep"))?;
    Ok(quantiles.to_vec())
}

/// The value of an option, if it is given.
fn parsed<T>(
    text: Option<&str>,
    name: &str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Failure> {
    text.map(parse).transpose().map_err(flag(name))
}

/// The error about an option, by the flag that it stands for.
fn flag(name: &str) -> impl Fn(String) -> Failure {
    move |message| Failure::usage(format!("{name}: {message}"))
}

/// The autoscaler with these changes, validated again.
fn applied(
    changes: &Changes,
    chosen: AutoscalerWorkload,
    context: &CommandContext,
) -> Result<AutoscalerWorkload, Failure> {
    // Always an autoscaler of one cluster: `chosen_one` refuses fleets.
    let Autoscaler::Effective(ehpa) = &chosen.autoscaler else {
        return Ok(chosen);
    };
    if *changes == Changes::default() {
        return Ok(chosen);
    }
    let mut ehpa = EffectiveHorizontalPodAutoscaler::clone(ehpa);
    change(changes, &mut ehpa);
    let object = serde_json::to_value(&ehpa).map_err(Failure::invalid)?;
    let applied = Document::of("the applied manifest".to_owned(), &object);
    Ok(inputs::chosen_one(&[applied], None, &context.validator())?)
}

fn change(changes: &Changes, ehpa: &mut EffectiveHorizontalPodAutoscaler) {
    let spec = &mut ehpa.spec;
    spec.min_replicas = changes.min_replicas.or(spec.min_replicas);
    spec.max_replicas = changes.max_replicas.unwrap_or(spec.max_replicas);
    // Changed bounds alone must not add a prediction to a spec without one.
    let predicts = Changes {
        min_replicas: None,
        max_replicas: None,
        ..changes.clone()
    };
    if predicts == Changes::default() {
        return;
    }
    let prediction = spec.prediction.get_or_insert_default();
    if changes.quantile.is_some() {
        prediction.quantile = changes.quantile;
        // The API server refuses a spec with both.
        prediction.max_under_provisioned_percent = None;
    }
    prediction.lead_time_seconds = changes.lead_time_seconds.or(prediction.lead_time_seconds);
    if let Some(algorithm) = &changes.algorithm {
        let block = prediction.prediction_algorithm.get_or_insert_default();
        block.algorithm_type = Some(algorithm.clone());
    }
}

// === impl LabReport ===

impl LabReport {
    /// The report as `foretide backtest -o json` prints it.
    pub fn json(&self) -> String {
        CommandOutput::json("Backtest", &self.report).text
    }

    /// The chart of both runs, for a page with [`foretide_chart::STYLE`].
    pub fn chart(&self) -> Chart {
        let mut chart = page::chart(&self.report);
        if let Some(zone) = &self.zone {
            chart.zone = zone.rules().clone();
        }
        chart
    }

    /// Costs of each quantile of the sweep; absent without a sweep.
    pub fn sweep_chart(&self) -> Option<Scatter> {
        let report = &self.report;
        (!report.sweep.is_empty()).then(|| page::prices(report))
    }

    /// The report as a page in one file, as `-o html` writes it.
    ///
    /// # Errors
    /// The manifest cannot be written as YAML.
    pub fn html(&self) -> Result<String, Failure> {
        page::html(&self.report)
    }

    /// The autoscaler with its changes, ready to be applied.
    ///
    /// # Errors
    /// The object cannot be written as YAML.
    pub fn manifest(&self) -> Result<String, Failure> {
        Ok(manifest::written(&self.report.setup.autoscaler)?)
    }
}
