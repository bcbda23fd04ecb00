//! Reading the JSON of Prometheus' query API, and of servers that imitate it: in one pass, with bounded memory, in
//! any order of fields, tolerant of what is new and strict about what is cut off. Decides nothing about HTTP, and
//! skips native histograms, which have no single value.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use foretide_models::Sample;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The value of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// One number, of no series.
    Scalar(Sample),
    /// A string expression.
    Text(String),
    /// The series of an instant query (one sample each) or of a range query.
    Series(Vec<Labelled>),
}

/// One series: its labels and its samples, in the server's order.
#[derive(Debug, Clone, PartialEq)]
pub struct Labelled {
    /// Names and values.
    pub labels: BTreeMap<String, String>,
    /// Values may be NaN or infinite.
    pub samples: Vec<Sample>,
}

/// A successful answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What was asked for.
    pub data: Data,
    /// What the server says is missing or doubtful; empty when the answer is whole. Advice about the query's style
    /// (`PromQL info: ...`) is left out.
    pub warnings: Vec<String>,
    /// Series left out because they hold native histograms only.
    pub histograms: usize,
}

/// Why there is no answer in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The server reports an error.
    #[error("{kind}: {message}")]
    Failed {
        /// `errorType`, as in `bad_data`, `execution`, `timeout`; servers add their own.
        kind: String,
        /// The server's words.
        message: String,
    },
    /// More samples than the caller has room for.
    #[error("the answer holds more than {0} samples")]
    TooManySamples(usize),
    /// Not JSON of the expected form, or cut off.
    #[error("expected a Prometheus query answer: {0}")]
    Malformed(String),
}

/// Parses a whole body into an answer of at most `limit` samples (and as many labels).
///
/// # Errors
/// [`ResponseError`]; a truncated body is malformed, never a short answer.
pub fn parse(body: &[u8], limit: usize) -> Result<Answer, ResponseError> {
    let budget = Budget {
        left: Cell::new(limit),
        labels: Cell::new(limit),
    };
    let mut input = serde_json::Deserializer::from_slice(body);
    let envelope = EnvelopeSeed(&budget)
        .deserialize(&mut input)
        .and_then(|envelope| {
            input.end()?;
            Ok(envelope)
        });
    match envelope {
        Ok(envelope) => envelope.answer(),
        Err(_) if budget.is_spent() => Err(ResponseError::TooManySamples(limit)),
        Err(error) => Err(ResponseError::Malformed(error.to_string())),
    }
}

/// What may still be stored.
struct Budget {
    left: Cell<usize>,
    labels: Cell<usize>,
}

impl Budget {
    fn spend<E: de::Error>(counter: &Cell<usize>) -> Result<(), E> {
        // Past the end the counter wraps to MAX, which marks it as overspent.
        let left = counter.get().wrapping_sub(1);
        counter.set(left);
        if left == usize::MAX {
            Err(E::custom("too many samples"))
        } else {
            Ok(())
        }
    }

    fn is_spent(&self) -> bool {
        self.left.get() == usize::MAX || self.labels.get() == usize::MAX
    }
}

#[derive(Default)]
struct Envelope {
    status: Option<String>,
    data: Option<RawData>,
    kind: Option<String>,
    error: Option<String>,
    warnings: Vec<String>,
    partial: bool,
}

impl Envelope {
    fn answer(mut self) -> Result<Answer, ResponseError> {
        match self.status.as_deref() {
            Some("success") => {}
            Some("error") => {
                return Err(ResponseError::Failed {
                    kind: self.kind.unwrap_or_else(|| "unknown".to_owned()),
                    message: self.error.unwrap_or_else(|| "no message".to_owned()),
                });
            }
            other => return Err(malformed(&format!("status is {other:?}"))),
        }
        if self.partial {
            self.warnings
                .push("the server marks the answer as partial".to_owned());
        }
        let RawData { kind, result } = self.data.ok_or_else(|| malformed("no data"))?;
        let kind = kind.ok_or_else(|| malformed("no resultType"))?;
        let (data, histograms) = result.ok_or_else(|| malformed("no result"))?.typed(&kind)?;
        Ok(Answer {
            data,
            warnings: self.warnings,
            histograms,
        })
    }
}

fn malformed(message: &str) -> ResponseError {
    ResponseError::Malformed(message.to_owned())
}

#[derive(Default)]
struct RawData {
    kind: Option<String>,
    result: Option<RawResult>,
}

/// A result before its type is known, for `resultType` may come after it.
enum RawResult {
    Series(Vec<Option<Labelled>>),
    Pair(f64, String),
}

impl RawResult {
    fn typed(self, kind: &str) -> Result<(Data, usize), ResponseError> {
        match (kind, self) {
            ("vector" | "matrix", Self::Series(all)) => {
                let total = all.len();
                let series: Vec<Labelled> = all.into_iter().flatten().collect();
                let histograms = total - series.len();
                Ok((Data::Series(series), histograms))
            }
            ("scalar", Self::Pair(at, value)) => {
                let sample = sample(at, &value).map_err(|problem| malformed(&problem))?;
                Ok((Data::Scalar(sample), 0))
            }
            ("string", Self::Pair(_, value)) => Ok((Data::Text(value), 0)),
            (kind, _) => Err(malformed(&format!("a result that is not a {kind:?}"))),
        }
    }
}

/// Seconds since 1970 (fractions are rounded to milliseconds) and a Go float.
fn sample(at: f64, value: &str) -> Result<Sample, String> {
    let millis = (at * 1000.0).round();
    let whole = if millis.abs() < 1e17 {
        as_whole(millis)
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
const fn as_whole(number: f64) -> i64 {
    number as i64
}

struct EnvelopeSeed<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for EnvelopeSeed<'_> {
    type Value = Envelope;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Envelope, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EnvelopeSeed<'_> {
    type Value = Envelope;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with status and data")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" => envelope.status = map.next_value()?,
                "data" => envelope.data = map.next_value_seed(DataSeed(self.0))?,
                "errorType" => envelope.kind = map.next_value::<Loose>()?.0,
                "error" => envelope.error = map.next_value::<Loose>()?.0,
                "warnings" => envelope.warnings.extend(notes(&mut map)?),
                "infos" => envelope
                    .warnings
                    .extend(notes(&mut map)?.filter(|note| is_about_data(note))),
                "isPartial" => envelope.partial = map.next_value::<Option<bool>>()? == Some(true),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(envelope)
    }
}

/// The first of the server's remarks; one is enough to refuse, and a condition holds few.
fn notes<'de, A: MapAccess<'de>>(map: &mut A) -> Result<impl Iterator<Item = String>, A::Error> {
    let notes = map.next_value::<Option<Vec<String>>>()?.unwrap_or_default();
    Ok(notes.into_iter().take(3))
}

/// Style advice has this prefix since Prometheus 2.50; everything else is about missing data.
fn is_about_data(note: &str) -> bool {
    !note.starts_with("PromQL info:")
}

/// An error's type or message, whatever JSON a server puts there.
struct Loose(Option<String>);

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(Self(match serde_json::Value::deserialize(input)? {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }))
    }
}

struct DataSeed<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for DataSeed<'_> {
    type Value = Option<RawData>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DataSeed<'_> {
    type Value = Option<RawData>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with resultType and result, or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut data = RawData::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "resultType" => data.kind = map.next_value()?,
                "result" => data.result = Some(map.next_value_seed(ResultSeed(self.0))?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Some(data))
    }
}

struct ResultSeed<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for ResultSeed<'_> {
    type Value = RawResult;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<RawResult, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ResultSeed<'_> {
    type Value = RawResult;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series, a [time, value] pair, or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<RawResult, E> {
        Ok(RawResult::Series(Vec::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawResult, A::Error> {
        let mut series = Vec::new();
        while let Some(item) = list.next_element_seed(ItemSeed(self.0))? {
            match item {
                Item::Series(one) => {
                    Budget::spend(&self.0.labels)?;
                    series.push(one);
                }
                Item::Number(at) if series.is_empty() => {
                    let value = list.next_element::<Text<'de>>()?;
                    let value = value.ok_or_else(|| de::Error::invalid_length(1, &"a pair"))?;
                    return match list.next_element::<IgnoredAny>()? {
                        None => Ok(RawResult::Pair(at, value.0.into_owned())),
                        Some(_) => Err(de::Error::invalid_length(3, &"a pair")),
                    };
                }
                Item::Number(_) => return Err(de::Error::custom("a number among series")),
            }
        }
        Ok(RawResult::Series(series))
    }
}

/// An element of `result`: a series (none when it holds histograms only), or the time of a scalar.
enum Item {
    Series(Option<Labelled>),
    Number(f64),
}

struct ItemSeed<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for ItemSeed<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Item, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemSeed<'_> {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series or a time")
    }

    fn visit_f64<E>(self, at: f64) -> Result<Item, E> {
        Ok(Item::Number(at))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since 1970 are far below 2^53"
    )]
    fn visit_u64<E>(self, at: u64) -> Result<Item, E> {
        Ok(Item::Number(at as f64))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since 1970 are far below 2^53"
    )]
    fn visit_i64<E>(self, at: i64) -> Result<Item, E> {
        Ok(Item::Number(at as f64))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let mut labels = BTreeMap::new();
        let mut samples = None;
        let mut histograms = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metric" => labels = map.next_value_seed(LabelsSeed(self.0))?,
                "value" => samples = Some(vec![map.next_value_seed(PointSeed(self.0))?]),
                "values" => samples = Some(map.next_value_seed(PointsSeed(self.0))?),
                "histogram" | "histograms" => {
                    map.next_value::<IgnoredAny>()?;
                    histograms = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match samples {
            Some(samples) => Ok(Item::Series(Some(Labelled { labels, samples }))),
            None if histograms => Ok(Item::Series(None)),
            None => Err(de::Error::custom(
                "a series without value, values or histograms",
            )),
        }
    }
}

struct LabelsSeed<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for LabelsSeed<'_> {
    type Value = BTreeMap<String, String>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LabelsSeed<'_> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            Budget::spend(&self.0.labels)?;
            labels.insert(name, value);
        }
        Ok(labels)
    }
}

struct PointsSeed<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for PointsSeed<'_> {
    type Value = Vec<Sample>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for PointsSeed<'_> {
    type Value = Vec<Sample>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of [time, value] pairs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut samples = Vec::new();
        while let Some(sample) = list.next_element_seed(PointSeed(self.0))? {
            samples.push(sample);
        }
        Ok(samples)
    }
}

struct PointSeed<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for PointSeed<'_> {
    type Value = Sample;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Sample, D::Error> {
        Budget::spend(&self.0.left)?;
        let (at, value) = <(f64, Text<'de>)>::deserialize(input)?;
        sample(at, &value.0).map_err(de::Error::custom)
    }
}

/// The text of a value, borrowed from the body where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[cfg(test)]
mod tests;
