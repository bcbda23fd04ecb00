//! The files of the page: those in `assets/`, the stylesheet of charts, and the sources of proposals.

use std::{fmt::Write as _, sync::LazyLock};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use ring::digest::{SHA256, digest};

use foretide_chart::{STYLE, TONES};
use foretide_domain::proposal::Source;

use super::answer::{Text, elements, takes_gzip};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file: its path, its media type and its text.
type Asset = (&'static str, &'static str, &'static [u8]);

const ASSETS: &[Asset] = &[
    ("/", HTML, include_bytes!("assets/index.html")),
    ("/page.css", CSS, include_bytes!("assets/page.css")),
    ("/icon.svg", SVG, include_bytes!("assets/icon.svg")),
    ("/app.js", SCRIPT, include_bytes!("assets/app.js")),
    ("/calendar.js", SCRIPT, include_bytes!("assets/calendar.js")),
    ("/chart.js", SCRIPT, include_bytes!("assets/chart.js")),
    ("/clusters.js", SCRIPT, include_bytes!("assets/clusters.js")),
    ("/dom.js", SCRIPT, include_bytes!("assets/dom.js")),
    ("/fleet.js", SCRIPT, include_bytes!("assets/fleet.js")),
    ("/format.js", SCRIPT, include_bytes!("assets/format.js")),
    ("/health.js", SCRIPT, include_bytes!("assets/health.js")),
    ("/lab.js", SCRIPT, include_bytes!("assets/lab.js")),
    ("/moment.js", SCRIPT, include_bytes!("assets/moment.js")),
    ("/theme.js", SCRIPT, include_bytes!("assets/theme.js")),
    ("/workload.js", SCRIPT, include_bytes!("assets/workload.js")),
    ("/worth.js", SCRIPT, include_bytes!("assets/worth.js")),
];

/// A file as it is sent.
struct Served {
    tag: HeaderValue,
    plain: Text,
    compressed: Text,
}

/// Compressed when the first router is built, not when someone asks.
static SERVED: LazyLock<Vec<(&str, Served)>> = LazyLock::new(|| {
    let sources = serde_json::json!(Source::words());
    let of_floor = Source::of_floor();
    let sources =
        format!("export const SOURCES = {sources};\nexport const OF_FLOOR = \"{of_floor}\";\n");
    let generated = [
        ("/chart.css", CSS, [STYLE, TONES].concat().into()),
        ("/sources.js", SCRIPT, sources.into()),
    ];
    let read = ASSETS.iter();
    read.map(|&(path, media, bytes)| (path, media, Bytes::from_static(bytes)))
        .chain(generated)
        .map(|(path, media, bytes)| {
            let tag = tag(&bytes);
            let plain = Text::new(media, bytes);
            let served = Served {
                tag,
                compressed: plain.clone().compressed(),
                plain,
            };
            (path, served)
        })
        .collect()
});

/// A route for each file. A browser asks each time whether it has changed, and gets it only then.
pub fn routes() -> Router {
    SERVED.iter().fold(Router::new(), |router, (path, served)| {
        router.route(
            path,
            get(async |headers: HeaderMap| served.answer(&headers)),
        )
    })
}

// === impl Served ===

impl Served {
    fn answer(&self, headers: &HeaderMap) -> Response {
        let caching = [
            (header::ETAG, self.tag.clone()),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ];
        if elements(headers, &header::IF_NONE_MATCH).any(|known| self.tag == known) {
            return (StatusCode::NOT_MODIFIED, caching).into_response();
        }
        let text = if takes_gzip(headers) {
            &self.compressed
        } else {
            &self.plain
        };
        (caching, text.clone()).into_response()
    }
}

/// The tag of a content, weak, because the same tag stands for its compressed form.
fn tag(bytes: &[u8]) -> HeaderValue {
    let digest = digest(&SHA256, bytes);
    let mut tag = "W/\"".to_owned();
    for byte in &digest.as_ref()[..12] {
        let _written = write!(tag, "{byte:02x}").is_ok();
    }
    tag.push('"');
    HeaderValue::try_from(tag).unwrap_or_else(|_| HeaderValue::from_static("W/\"\""))
}
