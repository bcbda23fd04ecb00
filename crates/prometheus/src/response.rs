//! Parses the JSON body of a query response of Prometheus, or of a server that imitates its API.
//!
//! Fields may come in any order, unknown ones and the labels of series are ignored, and a truncated body is an error.
//! Native histograms are counted and skipped, because they have no single value. HTTP status codes are left to
//! `client`.
//!
//! ```text
//! {"status": "success", "data": {"resultType": "matrix", "result": [
//!     {"metric": {"pod": "web-0"}, "values": [[1700000000, "0.25"], [1700000060, "NaN"]]}]}}
//! ```

use std::{borrow::Cow, fmt, marker::PhantomData};

use foretide_models::Sample;
use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer as _,
    de::{self, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// The value of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// One number that belongs to no series.
    Scalar(Sample),
    /// A string expression.
    Text(String),
    /// The samples of each series of an instant query (one sample each) or of a range query, in the server's order.
    /// Values may be NaN or infinite.
    Series(Vec<Vec<Sample>>),
}

/// Limits on the contents of a response. What is beyond is counted and not stored: a server, or the author of a query,
/// must not decide how much memory a response takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimits {
    /// The most series, those of native histograms included.
    pub series: usize,
    /// The most samples of all series together.
    pub samples: usize,
}

/// A successful response.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResponse {
    /// The value of the query.
    pub data: Data,
    /// Data that the server reports as missing or doubtful; empty for a complete response. Advice about the query's
    /// style (`PromQL info: ...`) is left out.
    pub warnings: Vec<String>,
    /// Number of series that were skipped because they hold native histograms only.
    pub histograms: usize,
}

/// Reasons why a body holds no query result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The server reports an error.
    #[error("{kind}: {message}")]
    Failed {
        /// `errorType`, such as `bad_data`, `execution` or `timeout`; servers add their own.
        kind: String,
        /// The server's message.
        message: String,
    },
    /// More series than the caller accepts, whose samples were not read.
    #[error("the response holds {0} series")]
    TooManySeries(usize),
    /// More samples than the caller accepts.
    #[error("the response holds more than {0} samples")]
    TooManySamples(usize),
    /// Not JSON of the expected form, or truncated.
    #[error("expected a Prometheus query response: {0}")]
    Malformed(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    status: Option<String>,
    // Read only when `status` is `success`: an error may come with data of any form.
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    error_type: Option<Value>,
    error: Option<Value>,
    warnings: Option<Vec<String>>,
    infos: Option<Vec<String>>,
    is_partial: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawData<'a> {
    result_type: String,
    // `resultType`, which says how to read it, may come after it.
    #[serde(borrow)]
    result: &'a RawValue,
}

#[derive(Deserialize)]
struct RawSeries<'a> {
    value: Option<Point>,
    #[serde(borrow)]
    values: Option<&'a RawValue>,
    histogram: Option<IgnoredAny>,
    histograms: Option<IgnoredAny>,
}

/// A `[time, value]` pair of numbers.
struct Point(Sample);

/// A value, borrowed from the body where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Parses a body that holds at most as much as `limits` allow.
///
/// # Errors
/// [`ResponseError`]; a truncated body is malformed, never a shorter response.
pub fn parse(body: &[u8], limits: ResponseLimits) -> Result<QueryResponse, ResponseError> {
    let envelope: Envelope<'_> = serde_json::from_slice(body)?;
    match envelope.status.as_deref() {
        Some("success") => {}
        Some("error") => {
            return Err(ResponseError::Failed {
                kind: as_text(envelope.error_type, "unknown"),
                message: as_text(envelope.error, "no message"),
            });
        }
        Some(other) => {
            return Err(malformed(&format!(
                "status is {other:?}, expected success or error"
            )));
        }
        None => return Err(malformed("no status")),
    }
    let data = envelope.data.ok_or_else(|| malformed("no data"))?;
    let RawData {
        result_type,
        result,
    } = serde_json::from_str(data.get())?;
    let mut histograms = 0;
    let data = match result_type.as_str() {
        "vector" | "matrix" => {
            let all = read_series(result, limits)?;
            histograms = all.iter().filter(|series| series.is_none()).count();
            Data::Series(all.into_iter().flatten().collect())
        }
        "scalar" => {
            let Point(sample) = serde_json::from_str(result.get())?;
            Data::Scalar(sample)
        }
        "string" => {
            let (_time, Text(text)): (f64, Text<'_>) = serde_json::from_str(result.get())?;
            Data::Text(text.into_owned())
        }
        other => return Err(malformed(&format!("unknown resultType {other:?}"))),
    };
    let partial = (envelope.is_partial == Some(true))
        .then(|| "the server marks the response as partial".to_owned());
    Ok(QueryResponse {
        data,
        warnings: first_notes(envelope.warnings)
            .chain(first_notes(envelope.infos).filter(|note| is_about_data(note)))
            .chain(partial)
            .collect(),
        histograms,
    })
}

fn malformed(message: &str) -> ResponseError {
    ResponseError::Malformed(message.to_owned())
}

impl From<serde_json::Error> for ResponseError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// The type or message of an error, which some servers send as a number or a list.
fn as_text(value: Option<Value>, default: &str) -> String {
    match value {
        None => default.to_owned(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    }
}

/// The first of the server's notes: one is enough to reject the response, and a condition's message is short.
fn first_notes(notes: Option<Vec<String>>) -> impl Iterator<Item = String> {
    notes.into_iter().flatten().take(3)
}

/// Advice on style has this prefix since Prometheus 2.50; every other note is about missing data.
fn is_about_data(note: &str) -> bool {
    !note.starts_with("PromQL info:")
}

/// The samples of every series; none for one that has native histograms only.
fn read_series(
    result: &RawValue,
    limits: ResponseLimits,
) -> Result<Vec<Option<Vec<Sample>>>, ResponseError> {
    let entries: LimitedList<RawSeries<'_>> = read_list(result, limits.series)?;
    if entries.length > limits.series {
        return Err(ResponseError::TooManySeries(entries.length));
    }
    let mut left = limits.samples;
    let mut all = Vec::new();
    for entry in entries.elements {
        let points = match (entry.value, entry.values) {
            (_, Some(values)) => {
                let points: LimitedList<Point> = read_list(values, left)?;
                let rest = left.checked_sub(points.length);
                left = rest.ok_or(ResponseError::TooManySamples(limits.samples))?;
                points.elements
            }
            (Some(value), None) => vec![value],
            (None, None) if entry.histogram.is_some() || entry.histograms.is_some() => {
                all.push(None);
                continue;
            }
            (None, None) => {
                return Err(malformed("a series without value, values or histograms"));
            }
        };
        all.push(Some(
            points.into_iter().map(|Point(sample)| sample).collect(),
        ));
    }
    Ok(all)
}

/// The first elements of a list, and its whole length.
struct LimitedList<T> {
    elements: Vec<T>,
    length: usize,
}

/// The elements of a list, none for `null`. Of a list longer than `max` only `max` are stored.
fn read_list<'de, T: Deserialize<'de>>(
    text: &'de RawValue,
    max: usize,
) -> serde_json::Result<LimitedList<T>> {
    let element = PhantomData;
    serde_json::Deserializer::from_str(text.get()).deserialize_any(ListVisitor { max, element })
}

struct ListVisitor<T> {
    max: usize,
    element: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = LimitedList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or null")
    }

    fn visit_unit<E>(self) -> Result<LimitedList<T>, E> {
        let (elements, length) = (Vec::new(), 0);
        Ok(LimitedList { elements, length })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LimitedList<T>, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < self.max {
            match list.next_element()? {
                Some(element) => elements.push(element),
                None => break,
            }
        }
        let mut length = elements.len();
        // Reads on without storing, because the rest must be valid JSON, too.
        while list.next_element::<IgnoredAny>()?.is_some() {
            length += 1;
        }
        Ok(LimitedList { elements, length })
    }
}

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let (at, Text(value)) = Deserialize::deserialize(input)?;
        sample(at, &value).map(Self).map_err(de::Error::custom)
    }
}

/// A sample from seconds since 1970 (rounded to milliseconds) and a number as Go prints it: `1e+06`, `NaN`, `+Inf`.
fn sample(at: f64, value: &str) -> Result<Sample, String> {
    let millis = (at * 1000.0).round();
    // Larger ones are outside of what a timestamp can hold and fail below, as do NaN and infinity.
    let whole = if millis.abs() < 1e17 {
        as_integer(millis)
    } else {
        i64::MAX
    };
    let at = Timestamp::from_millisecond(whole).map_err(|_| format!("time {at} out of range"))?;
    let value = value
        .parse()
        .map_err(|_| format!("value {value:?} is not a number"))?;
    Ok(Sample { at, value })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the caller checked the range"
)]
const fn as_integer(number: f64) -> i64 {
    number as i64
}

#[cfg(test)]
mod tests;
