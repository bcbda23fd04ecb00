use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use tokio::net::{TcpListener, TcpSocket};
use url::Url;

use super::*;
use foretide_api::ports::{CredentialFiles, CustomHeader, Setting};
use foretide_base::machine::Machine;

const ONE: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[60,"1"],[120,"2"]]}]}}"#;

fn minute(n: i64) -> Timestamp {
    Timestamp::from_second(n * 60).unwrap()
}

fn one() -> Vec<Sample> {
    vec![
        Sample {
            at: minute(1),
            value: 1.0,
        },
        Sample {
            at: minute(2),
            value: 2.0,
        },
    ]
}

/// A server on loopback that answers each range query by `answer`.
async fn serve<F, A>(answer: F) -> SocketAddr
where
    F: Fn(HeaderMap, Vec<(String, String)>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = axum::response::Response> + Send,
{
    let handler = move |headers: HeaderMap, body: String| {
        let form = Url::parse(&format!("http://form/?{body}")).unwrap();
        answer(headers, form.query_pairs().into_owned().collect())
    };
    let routes = Router::new().route("/prom/api/v1/query_range", post(handler));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

fn server(address: SocketAddr) -> HistoryServer {
    HistoryServer::at(&format!("http://{address}/prom")).unwrap()
}

fn client(address: SocketAddr, timeout: Duration) -> Prometheus {
    Prometheus::with_timeout(&server(address), &Machine::system(), timeout)
}

async fn range(address: SocketAddr) -> Result<Vec<Sample>, HistoryError> {
    range_of(&client(address, Duration::from_secs(20))).await
}

async fn range_of(prometheus: &Prometheus) -> Result<Vec<Sample>, HistoryError> {
    range_for(prometheus, "shop").await
}

async fn range_for(prometheus: &Prometheus, namespace: &str) -> Result<Vec<Sample>, HistoryError> {
    let query = HistoryQuery {
        namespace: namespace.into(),
        endpoint: None,
        text: "sum(up)".into(),
    };
    let step = SignedDuration::from_mins(1);
    prometheus.range(&query, minute(1), minute(2), step).await
}

/// The outcome of a range query against a server that always sends this response.
async fn query_answered_with(status: u16, body: String) -> Result<Vec<Sample>, HistoryError> {
    let status = StatusCode::from_u16(status).unwrap();
    let address = serve(move |_, _| {
        let response = (status, body.clone()).into_response();
        async { response }
    })
    .await;
    range(address).await
}

#[tokio::test]
async fn a_range_query_posts_a_form_under_the_prefix_and_reads_the_one_series() {
    let (sent, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let address = serve(move |headers, form| {
        sent.send((headers, form)).unwrap();
        async { ONE.into_response() }
    })
    .await;
    assert_eq!(range(address).await.unwrap(), one());
    let (headers, form) = requests.recv().await.unwrap();
    let form: Vec<(&str, &str)> = form.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        form,
        [
            ("query", "sum(up)"),
            ("start", "60"),
            ("end", "120"),
            ("step", "60"),
            ("timeout", "19500ms")
        ]
    );
    assert!(!headers.contains_key(header::AUTHORIZATION));
    assert!(
        headers[header::ACCEPT_ENCODING]
            .to_str()
            .unwrap()
            .contains("gzip")
    );
}

/// The name of an error's variant.
fn variant(error: &HistoryError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(']).next().unwrap().to_owned()
}

/// Status, body, and the variant of the error that they become.
const BAD: [(u16, &str, &str); 13] = [
    (
        200,
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"histograms":[]}]}}"#,
        "Empty",
    ),
    (
        200,
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[]},{"metric":{"a":"2"},"values":[]}]}}"#,
        "MultiSeries",
    ),
    (
        200,
        r#"{"status":"success","warnings":["a store is down"],"data":{"resultType":"matrix","result":[{"metric":{},"values":[[60,"1"]]}]}}"#,
        "Partial",
    ),
    (
        200,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#,
        "Malformed",
    ),
    (
        200,
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric"#,
        "Malformed",
    ),
    (200, "<html>login</html>", "Malformed"),
    (429, "slow down", "Unavailable"),
    (502, "<html>Bad Gateway</html>", "Unavailable"),
    (302, "", "Rejected"),
    (401, "who are you", "Unauthorized"),
    (404, "404 page not found", "Rejected"),
    (500, ONE, "Unavailable"),
    (200, NONE, "Empty"),
];

const NONE: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
const LARGE: &str = "query processing would load too many samples into memory";

/// Status, type and text of an error of the server, and the variant of the error that they become.
const ERRORS: [(u16, &str, &str, &str); 7] = [
    (200, "x", "y", "Malformed"),
    (400, "bad_data", "parse error", "QueryRefused"),
    (422, "execution", "many-to-many", "QueryRefused"),
    (422, "execution", LARGE, "TooManySamples"),
    (503, "timeout", "query timed out", "Timeout"),
    (503, "unavailable", "not ready", "Unavailable"),
    (429, "too_many_requests", "wait", "Unavailable"),
];

#[tokio::test]
async fn every_bad_response_has_its_reason() {
    let errors = ERRORS.map(|(status, kind, text, expected)| {
        let body = format!(r#"{{"status":"error","errorType":"{kind}","error":"{text}"}}"#);
        (status, body, expected)
    });
    let bad = BAD.map(|(status, body, expected)| (status, body.to_owned(), expected));
    for (status, body, expected) in bad.into_iter().chain(errors) {
        let error = query_answered_with(status, body.clone()).await.unwrap_err();
        assert_eq!(variant(&error), expected, "{status} {body}: {error}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = serve(|_, _| async { ONE.into_response() }).await;
    let location = format!("http://{target}/prom/api/v1/query_range");
    let address = serve(move |_, _| {
        let location = location.clone();
        async move {
            (
                StatusCode::TEMPORARY_REDIRECT,
                [(header::LOCATION, location)],
            )
                .into_response()
        }
    })
    .await;
    assert_eq!(variant(&range(address).await.unwrap_err()), "Rejected");
}

#[tokio::test]
async fn a_request_to_a_silent_server_ends_at_the_deadline() {
    let address = serve(|_, _| std::future::pending()).await;
    let prometheus = client(address, Duration::from_millis(50));
    let error = range_of(&prometheus).await.unwrap_err();
    assert_eq!(variant(&error), "Timeout");
    assert!(error.to_string().contains("50ms"), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_is_not_asked_again_at_once() {
    let address = serve(|_, _| std::future::pending()).await;
    let prometheus = client(address, Duration::from_millis(10));
    for _query in 0..5 {
        let error = range_of(&prometheus).await.unwrap_err();
        assert!(matches!(error, HistoryError::Timeout { .. }), "{error}");
    }
    let error = range_of(&prometheus.clone()).await.unwrap_err();
    assert!(matches!(error, HistoryError::CircuitOpen { .. }), "{error}");
    assert!(prometheus.health("hub").is_circuit_open);
}

#[tokio::test]
async fn queries_that_the_server_gives_up_are_answers_to_their_namespace_only() {
    let body = r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#;
    let requests = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&requests);
    let address = serve(move |_, _| {
        let is_heavy = counted.fetch_add(1, Ordering::Relaxed) < 5;
        async move {
            if is_heavy {
                (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
            } else {
                ONE.into_response()
            }
        }
    })
    .await;
    let prometheus = client(address, Duration::from_secs(20));
    for _query in 0..5 {
        let error = range_for(&prometheus, "heavy").await.unwrap_err();
        assert!(matches!(error, HistoryError::Timeout { .. }), "{error}");
    }
    let error = range_for(&prometheus, "heavy").await.unwrap_err();
    assert!(matches!(error, HistoryError::CircuitOpen { .. }), "{error}");
    assert_eq!(range_for(&prometheus, "shop").await.unwrap(), one());
    assert!(!prometheus.health("hub").is_circuit_open);
}

#[tokio::test]
async fn a_body_that_stalls_ends_at_the_deadline() {
    use futures::StreamExt;
    let address = serve(|_, _| async {
        let first = futures::stream::iter([Ok::<_, std::io::Error>(&ONE[..40])]);
        Body::from_stream(first.chain(futures::stream::pending())).into_response()
    })
    .await;
    let prometheus = client(address, Duration::from_millis(80));
    let error = range_of(&prometheus).await.unwrap_err();
    assert_eq!(variant(&error), "Timeout");
}

#[tokio::test]
async fn a_connection_closed_within_the_body_is_an_error() {
    let address = serve(|_, _| async {
        let parts = [Ok(&ONE[..60]), Err(std::io::Error::other("cut"))];
        Body::from_stream(futures::stream::iter(parts)).into_response()
    })
    .await;
    assert_eq!(variant(&range(address).await.unwrap_err()), "Unreachable");
}

#[tokio::test]
async fn a_body_over_the_size_limit_is_rejected_before_it_is_stored() {
    let address = serve(|_, _| async {
        let chunk = vec![b' '; 1 << 20];
        let endless = futures::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
        Body::from_stream(endless).into_response()
    })
    .await;
    let error = range(address).await.unwrap_err();
    assert_eq!(variant(&error), "TooManySamples");
    assert!(error.to_string().contains("4 MiB"), "{error}");
}

/// `ONE`, gzip-compressed (a stored block: no compressor is needed to make it).
fn gzipped() -> Vec<u8> {
    let text = ONE.as_bytes();
    let length = u16::try_from(text.len()).unwrap();
    let mut crc = u32::MAX;
    for byte in text {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xEDB8_8320
            } else {
                crc >> 1
            };
        }
    }
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    packed.extend(length.to_le_bytes());
    packed.extend((!length).to_le_bytes());
    packed.extend(text);
    packed.extend((!crc).to_le_bytes());
    packed.extend(u32::from(length).to_le_bytes());
    packed
}

#[tokio::test]
async fn gzip_is_decompressed_and_broken_gzip_is_an_error() {
    let packed = |body: Vec<u8>| ([(header::CONTENT_ENCODING, "gzip")], body).into_response();
    let address = serve(move |_, _| async move { packed(gzipped()) }).await;
    assert_eq!(range(address).await.unwrap(), one());
    let address = serve(move |_, _| async move { packed(gzipped()[..40].to_vec()) }).await;
    assert_eq!(variant(&range(address).await.unwrap_err()), "Malformed");
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    // Bound, so that no other test listens on it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    assert_eq!(variant(&range(address).await.unwrap_err()), "Unreachable");
}

#[tokio::test]
async fn a_server_that_refuses_says_so_without_our_secrets() {
    let address = serve(|_, _| async {
        let body = "no: Authorization: Bearer of-a-proxy, X-Scope-OrgID: team-a";
        (StatusCode::FORBIDDEN, body).into_response()
    })
    .await;
    let header = CustomHeader {
        name: "X-Scope-OrgID".to_owned(),
        value: Setting::Value("team-a".to_owned()),
    };
    let credentials = CredentialFiles {
        headers: vec![header],
        ..CredentialFiles::default()
    };
    let server = HistoryServer::new(server(address).url().as_str(), credentials).unwrap();
    let error = range_of(&Prometheus::new(&server, &Machine::system()))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "Prometheus at http://{address}/prom refused the request (status 403): no: Authorization: Bearer [hidden], \
             X-Scope-OrgID: team-a; it was sent with the header X-Scope-OrgID: team-a"
        )
    );
}
