//! The JSON of Prometheus: the response to a range query, or the list of series that `promtool query range -o json`
//! prints. One series makes a history.

use std::borrow::Cow;

use super::{Position, RecordingError, Row, Rows, measured};
use foretide_prometheus::response::{self, Data, ResponseError, ResponseLimits};

/// Only one series is kept: for more, only their number matters.
const LIMITS: ResponseLimits = ResponseLimits {
    series: 1,
    samples: usize::MAX,
};

/// The rows, and the warnings of the server.
pub(super) fn read(file: &str, text: &str) -> Result<(Rows, Vec<String>), RecordingError> {
    let refused = |problem: String| RecordingError::NotARange {
        file: file.to_owned(),
        problem,
    };
    let parsed = response::parse(enveloped(text).as_bytes(), LIMITS);
    let response = parsed.map_err(|error| refused(problem(&error)))?;
    let series = match response.data {
        Data::Series(mut series) => series.pop(),
        Data::Scalar(_) | Data::Text(_) => {
            return Err(refused("the value of an instant query".to_owned()));
        }
    };
    let samples = series.ok_or_else(|| refused("no series".to_owned()))?;
    if samples.len() == 1 {
        return Err(refused("one sample, as of an instant query".to_owned()));
    }
    let mut rows = Rows {
        file: file.to_owned(),
        rows: Vec::with_capacity(samples.len()),
    };
    for (index, sample) in samples.into_iter().enumerate() {
        let position = Position::Value(index);
        let checked = measured(sample.value);
        let value = checked
            .map_err(|expected| rows.unreadable(position, &sample.value.to_string(), expected))?;
        rows.rows.push(Row {
            position,
            at: sample.at,
            value,
        });
    }
    let remarks = response.warnings.iter();
    let warnings = remarks.map(|warning| format!("{file}: Prometheus reported: {warning}"));
    Ok((rows, warnings.collect()))
}

/// A bare list of series as a response.
fn enveloped(text: &str) -> Cow<'_, str> {
    if text.trim_start().starts_with('[') {
        let data = format!(r#"{{"resultType": "matrix", "result": {text}}}"#);
        return Cow::Owned(format!(r#"{{"status": "success", "data": {data}}}"#));
    }
    Cow::Borrowed(text)
}

fn problem(error: &ResponseError) -> String {
    match error {
        ResponseError::TooManySeries(series) => {
            format!("{series} series; add them up in the query, as in sum(...)")
        }
        ResponseError::Failed { .. } => format!("an error of Prometheus: {error}"),
        ResponseError::TooManySamples(_) | ResponseError::Malformed(_) => {
            "not the JSON of a Prometheus query".to_owned()
        }
    }
}
