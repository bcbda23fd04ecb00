//! Recorded histories in files: tables, or the JSON of Prometheus, which is the response to a range query or the list of
//! series that `promtool query range -o json` prints. One series makes a history.

use std::{borrow::Cow, path::Path};

use foretide_backtest::recording::{self, History, RecordingError};
use foretide_domain::cron::Zone;
use foretide_prometheus::response::{self, Data, ResponseError, ResponseLimits};

use super::{files, output::Failure};

/// Only one series is kept: for more, only their number matters.
const LIMITS: ResponseLimits = ResponseLimits {
    series: 1,
    samples: usize::MAX,
};

/// Reads the history of a file.
///
/// # Errors
/// The file cannot be read, or its text is no history.
pub fn read(metric: &str, file: &str, zone: Option<&Zone>) -> Result<History, Failure> {
    let text = files::text(Path::new(file)).map_err(Failure::in_file)?;
    parse(metric, file, &text, zone).map_err(Failure::invalid)
}

/// Parses the text of a file.
///
/// # Errors
/// The text is no history.
pub fn parse(
    metric: &str,
    file: &str,
    text: &str,
    zone: Option<&Zone>,
) -> Result<History, RecordingError> {
    // Some tools begin UTF-8 with a byte order mark.
    let json = text.trim_start_matches('\u{feff}');
    if json.trim_start().starts_with(['{', '[']) {
        of_prometheus(metric, file, json)
    } else {
        recording::parse(metric, file, text, zone)
    }
}

fn of_prometheus(metric: &str, file: &str, text: &str) -> Result<History, RecordingError> {
    let refused = |problem: &str| RecordingError::NotARange {
        file: file.to_owned(),
        problem: problem.to_owned(),
    };
    let response = response::parse(enveloped(text).as_bytes(), LIMITS)
        .map_err(|error| refused(&problem(&error)))?;
    let Data::Series(series) = response.data else {
        return Err(refused("the value of an instant query"));
    };
    let samples = series.first().ok_or_else(|| refused("no series"))?;
    if samples.len() == 1 {
        return Err(refused("one sample, as of an instant query"));
    }
    let mut history = recording::of_values(metric, file, samples)?;
    for warning in response.warnings {
        history
            .notes
            .push(format!("{file}: Prometheus reported: {warning}"));
    }
    Ok(history)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds and values of the samples, and the notes.
    type Found = (Vec<(i64, f64)>, Vec<String>);

    fn read(text: &str) -> Result<Found, String> {
        let history = parse("", "h.csv", text, None).map_err(|error| error.to_string())?;
        let samples = history.recording.samples().iter();
        let samples = samples.map(|sample| (sample.at.as_second(), sample.value));
        Ok((samples.collect(), history.notes))
    }

    /// The samples of a text without notes.
    fn samples(text: &str) -> Vec<(i64, f64)> {
        let (samples, notes) = read(text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        assert_eq!(notes, [""; 0], "{text:?}");
        samples
    }

    #[test]
    fn prometheus_responses_are_read() {
        let series =
            r#"{"metric": {"app": "web"}, "values": [[1790812800, "5.5"], [1790812860.0, "6"]]}"#;
        let expected = [(1_790_812_800, 5.5), (1_790_812_860, 6.0)];
        let data = format!(r#"{{"resultType": "matrix", "result": [{series}]}}"#);
        assert_eq!(
            samples(&format!(r#"{{"status": "success", "data": {data}}}"#)),
            expected
        );
        assert_eq!(samples(&format!("\n[{series}]")), expected);
        let warned = format!(
            r#"{{"status": "success", "warnings": ["one store is away"], "data": {data}}}"#
        );
        let (_, notes) = read(&warned).unwrap();
        assert_eq!(notes, ["h.csv: Prometheus reported: one store is away"]);
    }

    fn data(kind: &str, result: &str) -> String {
        format!(
            r#"{{"status": "success", "data": {{"resultType": "{kind}", "result": {result}}}}}"#
        )
    }

    fn values(values: &str) -> String {
        data(
            "matrix",
            &format!(r#"[{{"metric": {{}}, "values": {values}}}]"#),
        )
    }

    #[test]
    fn json_that_is_no_range_of_one_series_is_refused() {
        let two =
            r#"[{"metric": {}, "values": [[60, "1"]]}, {"metric": {}, "values": [[60, "1"]]}]"#;
        let expected = "expected the response of one series to a range query (/api/v1/query_range)";
        for (text, problem) in [
            (
                data("matrix", two),
                "2 series; add them up in the query, as in sum(...)",
            ),
            (data("matrix", "[]"), "no series"),
            (
                data("scalar", r#"[60, "1"]"#),
                "the value of an instant query",
            ),
            (
                data("vector", r#"[{"metric": {}, "value": [60, "1"]}]"#),
                "one sample, as of an instant query",
            ),
            (
                r#"{"status": "error", "errorType": "bad_data", "error": "no such metric"}"#
                    .to_owned(),
                "an error of Prometheus: bad_data: no such metric",
            ),
            (
                values(r#"[[60, "one"]]"#),
                "not the JSON of a Prometheus query",
            ),
            ("{".to_owned(), "not the JSON of a Prometheus query"),
            ("[1, 2]".to_owned(), "not the JSON of a Prometheus query"),
        ] {
            assert_eq!(
                read(&text),
                Err(format!("h.csv: {problem}; {expected}")),
                "{text}"
            );
        }
    }

    #[test]
    fn values_that_are_stray_or_no_measurement_are_refused_with_their_position() {
        let stray = values(r#"[[0, "1"], [1790812800, "2"], [1790812860, "3"]]"#);
        assert_eq!(
        read(&stray),
        Err("h.csv: values[0]: 1970-01-01T00:00:00Z is 20727 days before the nearest other sample, \
             2026-10-01T00:00:00Z in values[1]; expected at most 7 days: remove it if its timestamp is wrong, or \
             split the file there"
            .to_owned())
    );
        let negative = values(r#"[[60, "1"], [120, "-2"]]"#);
        assert_eq!(
            read(&negative),
            Err("h.csv: values[1]: found \"-2\", expected a value that is a number of at least 0, in base units".to_owned())
        );
    }

    #[test]
    fn any_text_is_a_history_or_a_short_error() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            for text in [format!("[{text}"), format!("{{{text}")] {
                if let Err(error) = parse("", "h.csv", &text, None) {
                    assert!(error.to_string().chars().count() < 400, "{error}");
                }
            }
        });
    }
}
