use super::*;

fn at(seconds: f64, value: f64) -> Sample {
    sample(seconds, &value.to_string()).unwrap()
}

const LIMITS: ResponseLimits = ResponseLimits {
    series: 10,
    samples: 100,
};

fn read(body: &str) -> Result<QueryResponse, ResponseError> {
    parse(body.as_bytes(), LIMITS)
}

fn data(body: &str) -> Data {
    read(body).unwrap().data
}

#[test]
fn each_result_type_is_read() {
    assert_eq!(
        data(
            r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"a":"b"},"values":[[10,"1.5"],[20.25,"1e+06"]]},{"metric":{},"values":[]}]}}"#
        ),
        Data::Series(vec![vec![at(10.0, 1.5), at(20.25, 1e6)], vec![],])
    );
    assert_eq!(
        data(
            r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"__name__":"up"},"value":[1435781451.781,"0"]}]}}"#
        ),
        Data::Series(vec![vec![at(1_435_781_451.781, 0.0)]])
    );
    assert_eq!(
        data(r#"{"status":"success","data":{"resultType":"scalar","result":[5,"2"]}}"#),
        Data::Scalar(at(5.0, 2.0))
    );
    assert_eq!(
        data(r#"{"status":"success","data":{"resultType":"string","result":[5,"x"]}}"#),
        Data::Text("x".to_owned())
    );
}

#[test]
fn fields_come_in_any_order_and_unknown_ones_are_ignored() {
    let body = r#"{"isPartial":false,"data":{"stats":{"x":[1]},"result":[
        {"values":[[1,"1"]],"new":{},"metric":{}}],"resultType":"matrix"},"trace":null,"status":"success"}"#;
    assert_eq!(data(body), Data::Series(vec![vec![at(1.0, 1.0)]]));
}

#[test]
fn nan_and_infinite_values_are_kept() {
    let body = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},
        "values":[[1,"NaN"],[2,"+Inf"],[3,"-Inf"]]}]}}"#;
    let Data::Series(got) = data(body) else {
        unreachable!()
    };
    let values: Vec<f64> = got[0].iter().map(|sample| sample.value).collect();
    assert!(values[0].is_nan());
    assert_eq!(values[1..], [f64::INFINITY, f64::NEG_INFINITY]);
}

#[test]
fn native_histograms_are_counted_and_skipped() {
    let body = r#"{"status":"success","data":{"resultType":"matrix","result":[
        {"metric":{"a":"h"},"histograms":[[1,{"count":"1","sum":"2","buckets":[[0,"1","2","3"]]}]]},
        {"metric":{"a":"both"},"values":[[1,"1"]],"histograms":[[2,{}]]}]}}"#;
    let response = read(body).unwrap();
    assert_eq!(response.histograms, 1);
    assert_eq!(response.data, Data::Series(vec![vec![at(1.0, 1.0)]]));
}

#[test]
fn warnings_are_kept_and_style_advice_is_dropped() {
    let note = |notes: &str| {
        let body = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[]}},{notes}}}"#
        );
        read(&body).unwrap().warnings
    };
    assert_eq!(
        note(r#""warnings":["store down"],"infos":null"#),
        ["store down"]
    );
    assert!(note(r#""infos":["PromQL info: metric might not be a counter"]"#).is_empty());
    assert_eq!(
        note(r#""infos":["remote read failed"]"#),
        ["remote read failed"]
    );
    assert_eq!(
        note(r#""isPartial":true"#),
        ["the server marks the response as partial"]
    );
}

#[test]
fn an_error_of_the_server_is_reported_with_any_error_type() {
    for (body, expected) in [
        (
            r#"{"status":"error","errorType":"bad_data","error":"1:4: parse error"}"#,
            "bad_data: 1:4: parse error",
        ),
        (
            r#"{"status":"error","errorType":"too_many_requests","error":"slow down","data":null}"#,
            "too_many_requests: slow down",
        ),
        (
            r#"{"status":"error","errorType":422,"error":["x"]}"#,
            r#"422: ["x"]"#,
        ),
        (r#"{"status":"error"}"#, "unknown: no message"),
    ] {
        let error = read(body).unwrap_err();
        assert!(matches!(error, ResponseError::Failed { .. }), "{body}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_body_that_is_no_query_response_is_malformed() {
    let complete = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"],[2,"2"]]}]}}"#;
    assert!(read(complete).is_ok());
    for cut in 0..complete.len() {
        let error = read(&complete[..cut]).unwrap_err();
        assert!(
            matches!(error, ResponseError::Malformed(_)),
            "{}",
            &complete[..cut]
        );
    }
    for body in [
        "<html>502 Bad Gateway</html>",
        "null",
        "[]",
        "{}",
        r#"{"status":"success"}"#,
        r#"{"status":"maybe","data":{"resultType":"vector","result":[]}}"#,
        r#"{"status":"success","data":{"result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"matrix"}}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"streams","result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{}}]}}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1",2]}}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1e300,"1"]}}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,"one"]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]},5]}}"#,
    ] {
        assert!(
            matches!(read(body), Err(ResponseError::Malformed(_))),
            "{body}"
        );
    }
    assert!(read(&format!("{complete} trailing")).is_err());
}

#[test]
fn a_body_over_the_limits_is_rejected() {
    let body = |series: &str| {
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#)
    };
    let series = |samples: usize| {
        let points = vec![r#"[1,"1"]"#; samples].join(",");
        body(&format!(r#"{{"metric":{{}},"values":[{points}]}}"#))
    };
    assert!(read(&series(100)).is_ok());
    assert_eq!(read(&series(101)), Err(ResponseError::TooManySamples(100)));
    let many = |entry: &str, count| body(&vec![entry; count].join(","));
    assert!(read(&many(r#"{"values":[[1,"1"]]}"#, 10)).is_ok());
    assert_eq!(
        read(&many(r#"{"values":[[1,"1"]]}"#, 11)),
        Err(ResponseError::TooManySeries(11))
    );
}

#[test]
fn the_samples_of_too_many_series_are_not_read() {
    // Each series would be malformed if it were read.
    let body = |count| {
        let series = vec![r#"{"values":[[1,"one"]]}"#; count].join(",");
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#)
    };
    assert!(matches!(read(&body(10)), Err(ResponseError::Malformed(_))));
    assert_eq!(read(&body(11)), Err(ResponseError::TooManySeries(11)));
}

/// A valid body; the test overwrites part of it with arbitrary bytes.
const SEED: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1.5,"1"],[2,"NaN"]],"histograms":[[3,{}]]}]},"warnings":["w"],"errorType":"x"}"#;

#[test]
fn prom_response_json_of_arbitrary_bytes_is_a_response_or_an_error() {
    bolero::check!()
        .with_iterations(3000)
        .with_type::<(u8, Vec<u8>)>()
        .for_each(|(from, bytes)| {
            let _alone = parse(bytes, LIMITS);
            let mut body = SEED.as_bytes().to_vec();
            let from = usize::from(*from) % body.len();
            let to = (from + bytes.len() % 8).min(body.len());
            body.splice(from..to, bytes.iter().take(8).copied());
            if let Ok(response) = parse(&body, LIMITS)
                && let Data::Series(series) = response.data
            {
                assert!(series.iter().map(Vec::len).sum::<usize>() <= 100);
            }
        });
}
