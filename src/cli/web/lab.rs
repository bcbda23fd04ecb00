//! The Lab of a page: back-tests that run on the machine of the reader, one at a time, and their results in bounded memory.
//!
//! ```text
//! POST /lab/v1/experiments         an Experiment -> 201 and its id
//! GET  /lab/v1/experiments/{id}    the JSON of `foretide backtest`; 409 while it runs, 422 if it failed
//!          {id}/events             server-sent events: progress, then finished
//!          {id}/report.html, {id}/manifest.yaml
//!          {id}/chart.svg, {id}/sweep.svg     drawings for the page, `?width`; 404 without a sweep
//! DELETE /lab/v1/experiments/{id}  cancels and forgets it
//! ```

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, convert::Infallible, ops::ControlFlow, sync::Arc};

use axum::{
    Json, Router,
    extract::{
        DefaultBodyLimit, FromRequest as _, FromRequestParts, Path, Query, Request, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response, Sse, sse::Event},
    routing::{MethodRouter, get, post},
};
use foretide_chart::{Chart, Scatter};
use futures::{Stream, stream};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, watch};

use crate::cli::{
    backtest::lab::{self, LabReport},
    context::CommandContext,
    output::Failure,
};
use foretide_page::{
    api::{Experiment, ExperimentId, WidthQuery},
    http::Refusal,
};

/// The largest body of a request: a month of minutes of a metric has about 2 MiB.
const BODY_MAX: usize = 32 << 20;
/// Number of bodies that are received at a time.
const RECEIVED_AT_A_TIME: usize = 2;
/// Number of experiments that are kept, and bytes of their results.
const KEPT_MAX: usize = 8;
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Widths of drawings in pixels: for a phone, a tablet and a desktop.
const WIDTHS: [u32; 3] = [300, 640, 1160];

/// Policy for a report: it contains text and drawings, and its own styles.
const REPORT_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox";

/// The experiments of a page.
struct Lab {
    context: CommandContext,
    kept: Mutex<Kept>,
    receiving: Semaphore,
    /// A back-test uses a whole core.
    turn: Arc<Semaphore>,
}

#[derive(Default)]
struct Kept {
    /// Experiments, the oldest first.
    runs: VecDeque<Arc<Run>>,
    last_id: u64,
}

/// An experiment that waits, runs or has ended.
struct Run {
    id: u64,
    /// Ended from outside when the experiment is cancelled.
    state: watch::Sender<RunState>,
}

#[derive(Clone)]
enum RunState {
    /// Percentage that is done.
    Running {
        percent: u8,
    },
    Finished(Arc<Result<Results, String>>),
}

/// Results of an experiment, as they are served.
struct Results {
    json: String,
    html: String,
    manifest: String,
    /// Missing and doubtful parts of the histories.
    notes: Vec<String>,
    /// Drawings and not a chart, which holds every minute.
    charts: Drawings,
    sweeps: Option<Drawings>,
}

/// One drawing per width.
type Drawings = [String; WIDTHS.len()];

/// The experiment that a path names.
struct Id(String);

/// The routes of a Lab that holds no experiment yet.
pub fn routes(context: &CommandContext) -> Router {
    let lab = Arc::new(Lab::new(context.clone()));
    let one = "/lab/v1/experiments/{id}";
    Router::new()
        .route("/lab/v1/experiments", post(begin))
        .route(
            one,
            served(|results: &Results| as_media("application/json", &results.json)).delete(cancel),
        )
        .route(&format!("{one}/events"), get(events))
        .route(&format!("{one}/report.html"), served(report))
        .route(
            &format!("{one}/manifest.yaml"),
            served(|results: &Results| as_media("application/yaml", &results.manifest)),
        )
        .route(
            &format!("{one}/chart.svg"),
            drawn(|results| Some(&results.charts)),
        )
        .route(
            &format!("{one}/sweep.svg"),
            drawn(|results| results.sweeps.as_ref()),
        )
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(lab)
}

async fn begin(
    State(lab): State<Arc<Lab>>,
    request: Request,
) -> Result<(StatusCode, Json<ExperimentId>), Refusal> {
    let experiment = lab.receive(request).await?;
    let run = lab.kept.lock().begin()?;
    let id = run.id.to_string();
    tokio::spawn(lab.run(experiment, run));
    Ok((StatusCode::CREATED, Json(ExperimentId { id })))
}

fn unreadable(rejection: &JsonRejection) -> Refusal {
    let text = rejection.body_text();
    let cause = match rejection {
        JsonRejection::JsonDataError(_) | JsonRejection::JsonSyntaxError(_) => {
            // Before the colon axum names the failed step of reading the body.
            text.split_once(": ").map_or(&*text, |(_, cause)| cause)
        }
        JsonRejection::MissingJsonContentType(_) => "expected the content type application/json",
        _ => &text,
    };
    Refusal::new(rejection.status(), format!("invalid experiment: {cause}"))
}

async fn cancel(State(lab): State<Arc<Lab>>, Id(id): Id) -> Result<StatusCode, Refusal> {
    let run = lab.find(&id)?;
    run.end(Err("the experiment was cancelled".to_owned()));
    lab.kept.lock().runs.retain(|kept| kept.id != run.id);
    Ok(StatusCode::NO_CONTENT)
}

async fn events(State(lab): State<Arc<Lab>>, Id(id): Id) -> Result<impl IntoResponse, Refusal> {
    Ok(Sse::new(lab.find(&id)?.events()))
}

/// A handler that serves the results of a finished experiment.
fn served(
    render: impl Fn(&Results) -> Response + Clone + Send + Sync + 'static,
) -> MethodRouter<Arc<Lab>> {
    get(async move |State(lab): State<Arc<Lab>>, Id(id): Id| {
        lab.results(&id, |results| Ok(render(results)))
    })
}

/// A handler that serves the drawings of a finished experiment, which only those of a sweep may lack.
fn drawn(drawings: fn(&Results) -> Option<&Drawings>) -> MethodRouter<Arc<Lab>> {
    get(
        async move |State(lab): State<Arc<Lab>>,
                    Id(id): Id,
                    query: Result<Query<WidthQuery>, QueryRejection>| {
            let Query(query) = query?;
            lab.results(&id, |results| {
                drawings(results)
                    .map(|drawings| drawing(drawings, query))
                    .ok_or_else(|| Refusal::not_found("the experiment has no sweep"))
            })
        },
    )
}

/// The widest drawing that is not wider than requested.
fn drawing(drawings: &Drawings, query: WidthQuery) -> Response {
    let drawing = WIDTHS
        .iter()
        .zip(drawings)
        .rfind(|(width, _)| query.width.is_none_or(|asked| **width <= asked))
        .map_or(&drawings[0], |(_, drawing)| drawing);
    as_media("image/svg+xml", drawing)
}

fn as_media(media: &'static str, text: &str) -> Response {
    ([(header::CONTENT_TYPE, media)], text.to_owned()).into_response()
}

fn report(results: &Results) -> Response {
    let policy = [(header::CONTENT_SECURITY_POLICY, REPORT_POLICY)];
    let page = as_media("text/html; charset=utf-8", &results.html);
    (policy, page).into_response()
}

// === impl Id ===

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(id) = Path::from_request_parts(parts, state).await?;
        Ok(Self(id))
    }
}

// === impl Lab ===

impl Lab {
    fn new(context: CommandContext) -> Self {
        Self {
            context,
            kept: Mutex::default(),
            receiving: Semaphore::new(RECEIVED_AT_A_TIME),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    async fn receive(&self, request: Request) -> Result<Experiment, Refusal> {
        let _receiving = self.receiving.try_acquire().map_err(|_| {
            let message = "other experiments are being received; try again";
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, message)
        })?;
        Json::from_request(request, &())
            .await
            .map(|Json(experiment)| experiment)
            .map_err(|rejection| unreadable(&rejection))
    }

    fn find(&self, id: &str) -> Result<Arc<Run>, Refusal> {
        let kept = self.kept.lock();
        kept.runs
            .iter()
            .find(|run| run.id.to_string() == id)
            .cloned()
            .ok_or_else(|| Refusal::not_found("no such experiment; only the last eight are kept"))
    }

    /// Rendered results of a finished experiment.
    fn results(
        &self,
        id: &str,
        render: impl FnOnce(&Results) -> Result<Response, Refusal>,
    ) -> Result<Response, Refusal> {
        let state = self.find(id)?.state.borrow().clone();
        match state {
            RunState::Running { .. } => Err(Refusal::new(
                StatusCode::CONFLICT,
                "the experiment has not ended yet; its events tell when",
            )),
            RunState::Finished(outcome) => match &*outcome {
                Ok(results) => render(results),
                Err(message) => Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message)),
            },
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the lab is for people, and no part of a simulation"
    )]
    async fn run(self: Arc<Self>, experiment: Experiment, run: Arc<Run>) {
        // A run that is cancelled while it waits does not keep its histories until its turn.
        let turn = tokio::select! {
            biased;
            () = run.ended() => return,
            turn = Arc::clone(&self.turn).acquire_owned() => turn,
        };
        let (context, running) = (self.context.clone(), Arc::clone(&run));
        let computed = tokio::task::spawn_blocking(move || {
            // Held until the computation ends, and not only until the experiment is forgotten.
            let _turn = turn;
            let report = lab::run(&experiment, &context, &mut |part| running.advance(part))?;
            Results::of(&report)
        });
        let outcome = computed.await.unwrap_or_else(|error| {
            Err(Failure::runtime(format!(
                "the back-test broke off: {error}"
            )))
        });
        // Without effect if it has been cancelled.
        run.end(outcome.map_err(|failure| failure.message));
        self.kept.lock().shrink();
    }
}

// === impl Kept ===

impl Kept {
    /// Makes a place for a new experiment, if necessary that of the oldest one that has ended.
    fn begin(&mut self) -> Result<Arc<Run>, Refusal> {
        if self.runs.len() >= KEPT_MAX && !self.forget_oldest() {
            let message =
                "too many experiments are waiting; cancel one, or try again when one has ended";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        self.last_id += 1;
        let run = Arc::new(Run {
            id: self.last_id,
            state: watch::Sender::new(RunState::Running { percent: 0 }),
        });
        self.runs.push_back(Arc::clone(&run));
        Ok(run)
    }

    /// Forgets the oldest results while all are larger than they may be; the newest ones stay.
    fn shrink(&mut self) {
        let bytes = |kept: &Self| kept.runs.iter().map(|run| run.bytes()).sum::<usize>();
        while self.runs.len() > 1 && bytes(self) > KEPT_BYTES_MAX && self.forget_oldest() {}
    }

    fn forget_oldest(&mut self) -> bool {
        let ended = self.runs.iter().position(|run| run.bytes() > 0);
        ended.and_then(|ended| self.runs.remove(ended)).is_some()
    }
}

// === impl Run ===

impl Run {
    fn advance(&self, part: f64) -> ControlFlow<()> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates"
        )]
        let percent = (part * 100.0) as u8;
        let mut goes_on = ControlFlow::Continue(());
        self.state.send_if_modified(|state| match state {
            RunState::Running { percent: last } => std::mem::replace(last, percent) != percent,
            RunState::Finished(_) => {
                // A cancelled run needs no more results.
                goes_on = ControlFlow::Break(());
                false
            }
        });
        goes_on
    }

    /// Ends the run, unless it has ended.
    fn end(&self, outcome: Result<Results, String>) {
        self.state.send_if_modified(|state| {
            let runs = matches!(state, RunState::Running { .. });
            if runs {
                *state = RunState::Finished(Arc::new(outcome));
            }
            runs
        });
    }

    async fn ended(&self) {
        let mut states = self.state.subscribe();
        let _state = states
            .wait_for(|state: &RunState| matches!(state, RunState::Finished(_)))
            .await
            .is_ok();
    }

    /// The size of the results; 0 until the run has ended.
    fn bytes(&self) -> usize {
        match &*self.state.borrow() {
            RunState::Running { .. } => 0,
            RunState::Finished(outcome) => match &**outcome {
                Ok(results) => results.bytes(),
                // Never 0, which stands for a run that has not ended.
                Err(message) => message.len() + 1,
            },
        }
    }

    /// The progress of the run, whenever it changes, until it has ended.
    fn events(&self) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
        let mut states = self.state.subscribe();
        // Marked as changed, so that the present state is the first event.
        states.mark_changed();
        stream::unfold(Some(states), |states| async {
            let mut states = states?;
            states.changed().await.ok()?;
            let state = states.borrow_and_update().clone();
            let (event, data, is_last) = match state {
                RunState::Running { percent } => (
                    "progress",
                    json!({ "fraction": f64::from(percent) / 100.0 }),
                    false,
                ),
                RunState::Finished(outcome) => match &*outcome {
                    Ok(results) => ("finished", json!({ "notes": results.notes }), true),
                    Err(message) => ("finished", json!({ "error": message }), true),
                },
            };
            let event = Event::default().event(event).data(data.to_string());
            Some((Ok(event), (!is_last).then_some(states)))
        })
    }
}

// === impl Results ===

impl Results {
    fn bytes(&self) -> usize {
        let texts = [&self.json, &self.html, &self.manifest];
        let drawings = self.charts.iter().chain(self.sweeps.iter().flatten());
        texts.into_iter().chain(drawings).map(String::len).sum()
    }

    fn of(report: &LabReport) -> Result<Self, Failure> {
        Ok(Self {
            json: report.json(),
            html: report.html()?,
            manifest: report.manifest()?,
            notes: report.notes.clone(),
            charts: WIDTHS.map(|width| {
                Chart {
                    width,
                    ..report.chart()
                }
                .draw()
                .fragment()
            }),
            sweeps: report.sweep_chart().map(|prices| {
                WIDTHS.map(|width| {
                    Scatter {
                        width,
                        ..prices.clone()
                    }
                    .draw()
                    .fragment()
                })
            }),
        })
    }
}
