//! Prometheus: the usage of an app's pods, scraped twice a minute, by its query API.
//!
//! ```text
//! demand(t) ──every 30 s──► scrapes ──lag──► known ──► mean of a range ──► values ──► JSON
//!                 └─ outage: none, and for three minutes after it those of half the pods
//! ```
//!
//! The only supported query is the sum of the rates of `cpu` over the pods of a Deployment, in ranges of minutes.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::body::Body;
use futures::{FutureExt as _, future::pending};
use http::{Request, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp};

use super::Demand;
use crate::{Backend, Now};

/// The time between two scrapes, in seconds.
const SCRAPE: i64 = 30;
/// Time after an outage for which half of the pods are not scraped yet.
const SCRAPED_AGAIN: SignedDuration = SignedDuration::from_mins(3);
/// Largest number of values in an answer.
const POINTS: i64 = 11_000;

/// A Prometheus. Clones are the same.
#[derive(Clone)]
pub struct Prometheus(Arc<Inner>);

struct Inner {
    now: Now,
    demand: Demand,
    /// Time of the installation.
    since: Timestamp,
    defects: Mutex<Defects>,
    /// The texts of the queries, and whether each was answered.
    asked: Mutex<Vec<(String, bool)>>,
}

/// Defects of Prometheus.
#[derive(Debug, Clone, Default)]
pub struct Defects {
    /// Queries with this in their text are never answered.
    pub silent: Option<String>,
    /// Half of the pods are missing from the answers, which have a warning.
    pub is_partial: bool,
    /// Delay until a scrape is known.
    pub lag: SignedDuration,
    /// Between these times nothing is scraped.
    pub outage: Option<(Timestamp, Timestamp)>,
}

/// A range query.
struct Query {
    text: String,
    app: String,
    /// Range of a rate, in seconds.
    range: i64,
    start: i64,
    end: i64,
    step: i64,
}

// === impl Prometheus ===

impl Prometheus {
    /// A Prometheus that was installed at some time, and has scraped since then.
    pub fn new(now: Now, since: Timestamp, demand: Demand) -> Self {
        Self(Arc::new(Inner {
            now,
            demand,
            since,
            defects: Mutex::default(),
            asked: Mutex::default(),
        }))
    }

    /// Sets the defects from now on.
    pub fn set(&self, defects: Defects) {
        *lock(&self.0.defects) = defects;
    }

    /// Returns the number of queries with this in their text until now, and how many of them were not answered.
    pub fn asked(&self, part: &str) -> (usize, usize) {
        let all = lock(&self.0.asked);
        let meant = all.iter().filter(|(text, _)| text.contains(part));
        let unanswered = meant.clone().filter(|(_, is_answered)| !is_answered);
        (meant.count(), unanswered.count())
    }

    /// Returns the backend for the network.
    pub fn backend(&self) -> Backend {
        let this = self.clone();
        Arc::new(move |request| {
            let this = this.clone();
            async move { this.answer(&request).await }.boxed()
        })
    }

    async fn answer(&self, request: &Request<Vec<u8>>) -> Response<Body> {
        let Some(query) = Query::of(request) else {
            let error =
                r#"{"status":"error","errorType":"bad_data","error":"this is not simulated"}"#;
            return json(StatusCode::BAD_REQUEST, error.to_owned());
        };
        let defects = lock(&self.0.defects).clone();
        let silent = defects.silent.as_ref();
        let is_answered = silent.is_none_or(|part| !query.text.contains(part));
        lock(&self.0.asked).push((query.text.clone(), is_answered));
        if !is_answered {
            return pending().await;
        }
        let scrapes = self.scrapes(&query, &defects);
        let mut values = String::new();
        for at in (query.start..=query.end).step_by(usize::try_from(query.step).unwrap_or(1)) {
            let range = scrapes.range(query.numbers_before(at));
            if let Some(value) = mean(range.map(|(_number, cores)| *cores)) {
                let comma = if values.is_empty() { "" } else { "," };
                let _written = write!(values, r#"{comma}[{at},"{value}"]"#);
            }
        }
        let result = if values.is_empty() {
            String::new()
        } else {
            format!(r#"{{"metric":{{}},"values":[{values}]}}"#)
        };
        let warnings = if defects.is_partial {
            r#","warnings":["a store is not available"]"#
        } else {
            ""
        };
        let data = format!(r#"{{"resultType":"matrix","result":[{result}]}}"#);
        json(
            StatusCode::OK,
            format!(r#"{{"status":"success"{warnings},"data":{data}}}"#),
        )
    }

    /// The scraped demand of a query, in cores, by the number of the scrape.
    fn scrapes(&self, query: &Query, defects: &Defects) -> BTreeMap<i64, f64> {
        let known = (self.0.now)() - defects.lag;
        let numbers = *query.numbers_before(query.start).start()..=query.end.div_euclid(SCRAPE);
        let scrape = |number: i64| {
            let at = Timestamp::from_second(number * SCRAPE).ok()?;
            let is_known = self.0.since <= at && at <= known;
            let share = if is_known { defects.share(at) } else { None }?;
            let milli = u32::try_from((self.0.demand)(&query.app, at)).ok()?;
            Some((number, f64::from(milli) * share / 1_000.0))
        };
        numbers.filter_map(scrape).collect()
    }
}

/// The mean of some scrapes. A rate needs two.
fn mean(scrapes: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = scrapes.fold((0.0, 0), |(sum, count), one| (sum + one, count + 1));
    (count > 1).then(|| sum / f64::from(count))
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").finish_non_exhaustive()
    }
}

// === impl Defects ===

impl Defects {
    /// The part of the pods that is scraped at a time, if any is.
    fn share(&self, at: Timestamp) -> Option<f64> {
        let since_outage = match self.outage {
            Some((from, to)) if (from..to).contains(&at) => return None,
            Some((_, to)) if to <= at => Some(at.duration_since(to)),
            _ => None,
        };
        let is_half = self.is_partial || since_outage.is_some_and(|since| since < SCRAPED_AGAIN);
        Some(if is_half { 0.5 } else { 1.0 })
    }
}

// === impl Query ===

impl Query {
    /// The scrapes in its range before a time.
    const fn numbers_before(&self, at: i64) -> RangeInclusive<i64> {
        (at - self.range).div_euclid(SCRAPE) + 1..=at.div_euclid(SCRAPE)
    }

    fn of(request: &Request<Vec<u8>>) -> Option<Self> {
        let fields: Vec<_> = url::form_urlencoded::parse(request.body()).collect();
        let field = |name: &str| {
            let mut found = fields.iter().filter(|(key, _)| key == name);
            found.next().map(|(_, value)| value.as_ref())
        };
        let text = field("query")?.strip_prefix("sum(rate(container_cpu_usage_seconds_total{")?;
        let between = |from: &str, to: &str| Some(text.split_once(from)?.1.split_once(to)?.0);
        let number = |name: &str| field(name)?.parse::<i64>().ok();
        let query = Self {
            text: text.to_owned(),
            app: between("pod=~\"^", "-[")?.to_owned(),
            range: 60 * between("}[", "m]")?.parse::<i64>().ok()?,
            start: number("start")?,
            end: number("end")?,
            step: number("step")?,
        };
        let is_query = request.method() == "POST" && request.uri().path() == "/api/v1/query_range";
        let points = (query.end - query.start).checked_div(query.step)?;
        (is_query && (0..POINTS).contains(&points)).then_some(query)
    }
}

fn json(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
