//! Credentials in every file and field that may hold one, usable and not, and servers that take and refuse them: errors
//! are reported, and no secret is found in a log, a status, an event, a metric or the output of a command.

use std::{collections::BTreeMap, fs, process::Stdio};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use foretide_base::clock::Clock;
use foretide_crds::{FederatedHPA, TimeSeriesPrediction};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use regex::Regex;
use rig::{
    ClusterOptions, Component, History, Identity, Pki, Prometheus, Series, Span, TenantProxy,
    WebSecurity, eventually,
};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    manual_changes::condition,
    metrics_access::{free_address, get},
    world::{Folder, NAMESPACE, TIMEOUT, World, binary, four_days, seconds},
};

/// The header that names the tenant.
const TENANT_HEADER: &str = "X-Scope-OrgID";
/// The namespace of the members' Secrets.
const SYSTEM: &str = "foretide-system";
/// Length from which a part of a secret is secret, too.
const PART: usize = 12;

const TOKEN: &str = "pq4vX8kT2sZ7bN5pRw1eJ6";
const WRONG_TOKEN: &str = "gW3nK9dY5hC7mL2xVb8tQ4";
const TWO_LINES: &str = "uF6jB2wM8zD4kS9rHy3cX5\nvL7pT1nG5qE3hK8bZd2sW6";
const API_KEY: &str = "yS5cN8mJ2tP6wQ4gLk9xR3";
const CONTROL: &str = "hV9bX3zK7dW5rT1nMs6pF2";
const WRONG_PASSWORD: &str = "kD2fZ6qH8xG4vC9jNt7wL5";
const USERNAME: &str = "rB7tM1sY5pJ9hV3dQx8kN4";
const CA_COMMENT: &str = "zC4gW8nL2kQ6bF9mTr5vX7";
const KEY_COMMENT: &str = "tH6xS3jR9wB5yK1qPd8nG2";
const BROKEN_KEY: &str = "nJ8kP4vD6cT2zX7hWm3sY9";
const BROKEN_CA: &str = "wQ3rL7yG9fN5tB8xKs2jH6";
const OF_URL: &str = "xM5hT9bS1vR7kJ3qWz6dC8";
const MISPLACED: &str = "jK9wF5xN3mV7pZ1tHb4gD6";
const OF_MEMBER: &str = "bT2zQ8cH6sL4nX9vRk7mW3";

/// The texts by which a planted secret would be recognized, each with its name.
#[derive(Default)]
struct Planted(BTreeMap<String, &'static str>);

/// Outputs with their authors.
#[derive(Default)]
struct Outputs(Vec<(String, String)>);

/// A fleet whose members are those with the secrets in their kubeconfigs.
const FLEET: &str = r"
apiVersion: autoscaling.foretide.io/v1alpha1
kind: FederatedHPA
metadata: {name: shop, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  maxReplicas: 9
  federatedHPAAssignment: {federatedHPAAssignmentType: Duplicated}
";

/// Half an hour of another metric than the autoscaler's.
fn nothing(now: Timestamp) -> History {
    let span = Span {
        start: seconds(now) - 1_800.0,
        ..four_days(now)
    };
    History::new().gauge(
        "down",
        Series::of(&[("namespace", NAMESPACE)], span, |_| 1.0),
    )
}

/// Four days of the cpu usage of a pod of [`AUTOSCALER`], with a daily wave.
fn wave(now: Timestamp) -> History {
    let usage = |at: f64| 0.3 - 0.2 * (at / 86_400.0 * std::f64::consts::TAU).cos();
    let pod = [NAMESPACE, "php-apache-6d5f8c9b7d-x2v9k", "app"];
    History::new().cpu_usage(pod, four_days(now), usage)
}

/// A spec with a prediction of the cpu usage, whose history is in Prometheus.
const AUTOSCALER: &str = include_str!("../../examples/php-apache-dsp.yaml");

/// One state of the credentials.
struct Case {
    /// The section `prometheus` of the configuration.
    server: Value,
    /// The reason of the condition `PredictionReady`, and a part of its message.
    expected: (&'static str, &'static str),
}

// === impl Planted ===

impl Planted {
    /// A text of which no part may be shown either.
    fn text(&mut self, name: &'static str, secret: &str) {
        for line in secret.lines() {
            self.whole(name, line);
            for part in line.as_bytes().windows(PART) {
                self.add(name, str::from_utf8(part).unwrap());
            }
        }
    }

    /// The lines of a private key. Its first characters are those of every key.
    fn key(&mut self, name: &'static str, pem: &str) {
        for line in pem.lines().filter(|line| !line.starts_with("-----")) {
            self.whole(name, line);
        }
    }

    /// A text in its encodings: as base64, alone and within another text, and as the bytes that debug output shows.
    fn whole(&mut self, name: &'static str, text: &str) {
        self.add(name, text);
        for before in 0..3 {
            let encoded = STANDARD.encode(format!("{}{text}", " ".repeat(before)));
            // The characters at both ends depend on what is beside the text.
            let inner = encoded.trim_end_matches('=').len() - 1;
            let begin = [0, 2, 3][before];
            self.add(name, &encoded[begin..inner]);
        }
        let numbers: Vec<_> = text.bytes().map(|byte| byte.to_string()).collect();
        self.add(name, &numbers.join(", "));
        let digits: Vec<_> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.add(name, &digits.concat());
    }

    fn add(&mut self, name: &'static str, text: &str) {
        self.0.insert(text.to_owned(), name);
    }

    /// Places in which a secret is shown, with the text before it.
    fn shown_in(&self, outputs: &Outputs) -> Vec<String> {
        let any: Vec<_> = self.0.keys().map(|text| regex::escape(text)).collect();
        let any = Regex::new(&any.join("|")).unwrap();
        let shown = outputs.0.iter().flat_map(|(from, text)| {
            any.find_iter(text).map(move |found| {
                let before = text[..found.start()].chars().rev().take(200);
                let before: String = before.collect::<Vec<_>>().into_iter().rev().collect();
                let name = self.0[found.as_str()];
                format!("{from}: {name}: {before}{}", found.as_str())
            })
        });
        shown.collect()
    }
}

// === impl Outputs ===

impl Outputs {
    fn add(&mut self, from: &str, text: String) {
        self.0.push((from.to_owned(), text));
    }

    /// Keeps the output of a command, and returns it in one line, as long sentences are wrapped.
    async fn of(&mut self, command: &mut Command) -> String {
        let output = command.stdin(Stdio::null()).output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.add(&format!("{:?}", command.as_std()), text);
        words
    }
}

fn foretide(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretide"));
    command.args(args);
    command
}

/// The text of a configuration file.
fn configuration(server: &Value) -> String {
    let config = json!({
        "apiVersion": "foretide.io/v1alpha1",
        "kind": "ControllerConfig",
        "prometheus": server,
    });
    config.to_string()
}

/// Writes all files with secrets; returns the secrets.
fn plant(folder: &Folder, pki: &Pki, other: &Pki) -> Planted {
    let mut planted = Planted::default();
    planted.text("password", WebSecurity::PASSWORD);
    for (file, secret) in [
        ("token", TOKEN),
        ("wrong-token", WRONG_TOKEN),
        ("two-lines", TWO_LINES),
        ("api-key", API_KEY),
        ("wrong-password", WRONG_PASSWORD),
        ("wrong-user", USERNAME),
    ] {
        folder.write(file, secret);
        planted.text(file, secret);
    }
    folder.write("password", WebSecurity::PASSWORD);
    folder.write("user", WebSecurity::USER);
    folder.write("control", &format!("{CONTROL}\u{1}{CONTROL}"));
    for (file, pki) in [("ca.crt", pki), ("other.crt", other)] {
        folder.write(file, &format!("# {CA_COMMENT}\n{}", pki.ca_pem()));
    }
    for file in ["broken.crt", "broken-ca.crt"] {
        folder.write(file, &format!("-----BEGIN {BROKEN_CA}\n{BROKEN_CA}\n"));
    }
    folder.write(
        "broken.key",
        &format!("-----BEGIN PRIVATE KEY {BROKEN_KEY}\n{BROKEN_KEY}\n"),
    );
    for (name, pki, days) in [
        ("client", pki, -1..99),
        ("foreign", other, -1..99),
        ("expired", pki, -9..-2),
    ] {
        let Identity { certificate, key } = pki.client_valid("foretide", &days).unwrap();
        planted.key("client key", &key);
        let key = format!("# {KEY_COMMENT}\n{key}");
        folder.identity(name, &Identity { certificate, key });
    }
    for (name, secret) in [
        ("header with a control character", CONTROL),
        ("comment of the authority", CA_COMMENT),
        ("comment of the key", KEY_COMMENT),
        ("broken authority", BROKEN_CA),
        ("broken key", BROKEN_KEY),
        ("URL", OF_URL),
        ("field that is no file", MISPLACED),
        ("kubeconfig of a member", OF_MEMBER),
    ] {
        planted.text(name, secret);
    }
    planted
}

/// Every state that cannot be used, and then those that can, because a forecast stays in force. The servers are one
/// that wants a certificate and a password, one that wants a token, and one whose own certificate has expired.
fn cases([secured, proxy, expired]: [&str; 3]) -> Vec<Case> {
    let tls = |ca: &str, certificate: &str, key: &str| {
        json!({
            "caFile": format!("{ca}.crt"),
            "certFile": format!("{certificate}.crt"),
            "keyFile": format!("{key}.key"),
        })
    };
    let ours = tls("ca", "client", "client");
    let with_key = |token: &str, key: &str| {
        json!({
            "url": proxy,
            "bearerTokenFile": token,
            "headers": [
                { "name": TENANT_HEADER, "value": "nobody" },
                { "name": "X-Api-Key", "valueFile": key },
            ],
            "tls": ours,
        })
    };
    let bearer = |token: &str| with_key(token, "api-key");
    let basic = |username: &str, password: &str| {
        json!({
            "url": secured,
            "basicAuth": { "usernameFile": username, "passwordFile": password },
            "headers": [{ "name": "X-Api-Key", "valueFile": "api-key" }],
            "tls": ours,
        })
    };
    let with = |mut server: Value, field: &str, value: Value| {
        server[field] = value;
        server
    };
    let pair = |ca: &str, certificate: &str, key: &str| {
        let files = tls(ca, certificate, key);
        with(basic("user", "password"), "tls", files)
    };
    let only_ca = json!({ "caFile": "ca.crt" });
    let without_pair = with(basic("user", "password"), "tls", only_ca);
    let at_expired = with(bearer("token"), "url", json!(expired));
    let without_ca = with(bearer("token"), "tls", json!({}));
    let both = "a username and the password of /";
    let (bad, failed, refused) = ("CredentialsUnreadable", "TlsFailed", "Unauthorized");
    let all = [
        (bearer("two-lines"), bad, "/two-lines has characters"),
        (with_key("token", "control"), bad, "/control has characters"),
        (pair("ca", "client", "foreign"), bad, "used together"),
        (pair("ca", "client", "broken"), bad, "/broken.key holds no"),
        (pair("ca", "broken", "client"), bad, "/broken.crt holds no"),
        (pair("broken-ca", "client", "client"), bad, "/broken-ca.crt"),
        (pair("other", "client", "client"), failed, "/other.crt"),
        (pair("ca", "foreign", "foreign"), failed, "/foreign.crt is"),
        (pair("ca", "expired", "expired"), failed, "/expired.crt has"),
        (without_pair, failed, "asks for the certificate of the"),
        (at_expired, failed, "its certificate has expired"),
        (without_ca, bad, "this system has no CA certificates"),
        (bearer("wrong-token"), refused, "x-api-key: [hidden]"),
        (basic("wrong-user", "password"), refused, both),
        (basic("user", "wrong-password"), refused, "/wrong-password"),
        (bearer("wrong-token"), "Forbidden", "Bearer [hidden]"),
        (bearer("token"), "NoData", "X-Scope-OrgID: nobody"),
        (basic("user", "password"), "ForecastReady", ""),
    ];
    let cases = all.map(|(server, reason, message)| Case {
        server,
        expected: (reason, message),
    });
    cases.into()
}

/// Invalid or misspelled parts of a configuration, with their messages.
fn refused_configurations() -> Vec<(String, &'static str)> {
    let of_url = format!("https://foretide:{OF_URL}@127.0.0.1:9");
    let server = |more: Value| {
        let mut server = json!({ "url": "https://127.0.0.1:9" });
        server
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        configuration(&server)
    };
    let header =
        json!({ "headers": [{ "name": "X-Api-Key", "value": format!("{MISPLACED}\u{1}") }] });
    let cut = server(json!({ "bearerToken": MISPLACED }));
    let cut = &cut[..cut.find(MISPLACED).unwrap() + MISPLACED.len()];
    vec![
        (
            configuration(&json!({ "url": of_url })),
            "holds a user, a password",
        ),
        (server(json!({ "bearerToken": MISPLACED })), "unknown field"),
        (
            server(json!({ "bearerTokenFile": [MISPLACED] })),
            "expected",
        ),
        (
            server(json!({ "basicAuth": { "username": "us", "password": MISPLACED } })),
            "unknown field",
        ),
        (server(json!({ "basicAuth": MISPLACED })), "expected"),
        (server(json!({ "tls": MISPLACED })), "expected"),
        (server(json!({ "headers": MISPLACED })), "expected"),
        (configuration(&json!(MISPLACED)), "expected"),
        (server(header), "control characters"),
        (cut.to_owned(), "unclosed quote"),
        (
            format!(
                "apiVersion: foretide.io/v1alpha1\nkind: ControllerConfig\nprometheus:\n  bearerToken: &{MISPLACED} {MISPLACED}\n url: [\n"
            ),
            "",
        ),
    ]
}

/// A member whose Secret holds this kubeconfig.
async fn add_member(world: &World, name: &str, kubeconfig: &str) {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": SYSTEM, "labels": {
            "sigs.k8s.io/multicluster-runtime-kubeconfig": "true",
        } },
        "stringData": { "kubeconfig": kubeconfig },
    });
    world.apply(&secret.to_string()).await;
}

/// Adds members whose kubeconfigs hold secrets: a token that is refused, and forbidden fields.
async fn add_members(world: &World, folder: &Folder) {
    let kubeconfig = fs::read_to_string(world.cluster.kubeconfig_path()).unwrap();
    let of_user = |user: Value| {
        let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
        kubeconfig["users"][0]["user"] = user;
        kubeconfig
    };
    let data = |file: &str| STANDARD.encode(fs::read(folder.0.join(file)).unwrap());
    let pair = |key: &str| json!({ "client-certificate-data": data("client.crt"), "client-key-data": data(key) });
    let token = of_user(json!({ "token": OF_MEMBER }));
    let text = token.to_string();
    let cut = &text[..text.find(OF_MEMBER).unwrap() + OF_MEMBER.len()];
    let mut with_user = token.clone();
    let server = world
        .cluster
        .server()
        .replace("https://", &format!("https://me:{OF_URL}@"));
    with_user["clusters"][0]["cluster"]["server"] = json!(server);
    let mut broken = token.clone();
    broken["clusters"][0]["cluster"]["certificate-authority-data"] = json!(data("broken.crt"));
    for (name, kubeconfig) in [
        ("refused", text.as_str()),
        ("cut", cut),
        (
            "password",
            &of_user(json!({ "username": "me", "password": OF_MEMBER })).to_string(),
        ),
        (
            "token-of-two-lines",
            &of_user(json!({ "token": TWO_LINES })).to_string(),
        ),
        (
            "token-in-a-list",
            &of_user(json!({ "token": [OF_MEMBER] })).to_string(),
        ),
        ("foreign-key", &of_user(pair("foreign.key")).to_string()),
        ("broken-key", &of_user(pair("broken.key")).to_string()),
        ("broken-authority", &broken.to_string()),
        ("with-user", &with_user.to_string()),
    ] {
        add_member(world, name, kubeconfig).await;
    }
}

/// Waits until the condition `PredictionReady` has this reason, and a message with this text. A server that refuses a
/// certificate closes the connection while the request is on its way, and its answer can be lost: in that case the
/// controller asks again.
async fn reported(world: &World, (reason, message): (&str, &str)) {
    eventually(TIMEOUT, &format!("{reason}: {message}"), || async {
        let found = world.ehpas().get("php-apache").await;
        let status = found.map_err(|error| error.to_string())?.status;
        let status = serde_json::to_value(status).map_err(|error| error.to_string())?;
        let (is, said) = condition(&status, "PredictionReady").ok_or("no condition yet")?;
        let is_reported = is.ends_with(&format!("/{reason}")) && said.contains(message);
        is_reported.then_some(()).ok_or(format!("{is}: {said}"))
    })
    .await;
}

/// Runs a controller until it reports the expected state, and keeps its output and that of the commands.
async fn run(world: &World, folder: &Folder, case: &Case, outputs: &mut Outputs) {
    let config = folder.write("config.yaml", &configuration(&case.server));
    let log = folder.0.join("log");
    let written = fs::File::create(&log).unwrap();
    let listen = free_address();
    let mut command = binary(world.kubeconfig(), world.hpa_flags());
    command.arg("--config").arg(&config);
    command.args(["--listen", &listen.to_string()]);
    command.args(["--member-namespace", SYSTEM, "--member-allow-loopback"]);
    // `off` is the default of `kube_client`.
    command.args(["--log", "trace,kube_client=trace"]);
    // A system without certificate authorities, as an image may be.
    for variable in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.env(variable, folder.0.join("absent"));
    }
    command.stdout(written.try_clone().unwrap()).stderr(written);
    let controller = command.spawn().unwrap();

    let (reason, message) = case.expected;
    reported(world, case.expected).await;
    let from = |what: &str| format!("{what} at {reason} ({message})");
    outputs.add(
        &from("/metrics"),
        get(listen, "/metrics", None).await.unwrap().1,
    );
    outputs.add(
        &from("/readyz"),
        get(listen, "/readyz", None).await.unwrap().1,
    );
    let admin = world.cluster.kubeconfig_path();
    let admin = admin.to_str().unwrap();
    let object = format!("{NAMESPACE}/php-apache");
    let explained = outputs
        .of(&mut foretide(&["explain", &object, "--kubeconfig", admin]))
        .await;
    assert!(explained.contains(message), "{explained}");
    let is_advised = explained.contains("Suggested action: ");
    assert_eq!(is_advised, reason != "ForecastReady", "{explained}");
    outputs
        .of(&mut foretide(&["validate", "-f", config.to_str().unwrap()]))
        .await;
    if reason == "Unauthorized" && message.starts_with("x-api-key") {
        // A new token is followed without a restart.
        folder.write("wrong-token", TOKEN);
        reported(world, ("NoData", "X-Scope-OrgID: nobody")).await;
        folder.write("wrong-token", WRONG_TOKEN);
    }
    drop(controller);
    outputs.add(&from("log"), fs::read_to_string(&log).unwrap());
    let ehpa = world.ehpas().get("php-apache").await.unwrap();
    outputs.add(&from("status"), serde_json::to_string(&ehpa).unwrap());
    let predictions: Api<TimeSeriesPrediction> = Api::all(world.client.clone());
    let predictions = predictions
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert!(!predictions.is_empty());
    outputs.add(
        &from("predictions"),
        serde_json::to_string(&predictions).unwrap(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_any_kind_is_shown_whether_it_can_be_used_or_not() {
    let world = World::start(ClusterOptions::named("leaks").with(Component::MetricsServer)).await;
    let now = Clock::system().now();
    let (pki, other) = (Pki::new().unwrap(), Pki::new().unwrap());
    let security = WebSecurity {
        server: pki.server("prometheus").unwrap(),
        ca_pem: pki.ca_pem().to_owned(),
        client: Some(pki.client("rig", None).unwrap()),
        basic_auth: true,
    };
    let (full, empty) = (wave(now), nothing(now));
    let secured = Prometheus::start_secured(&full, security);
    let (secured, empty) = tokio::join!(secured, Prometheus::start(&empty));
    let (secured, empty) = (secured.unwrap(), empty.unwrap());
    let certificate = pki.server("mimir").unwrap();
    let tenants = [("nobody", empty.url())];
    let proxy = TenantProxy::start(&certificate, TOKEN, &tenants)
        .await
        .unwrap();
    let expired = pki.server_valid("mimir", &(-9..-2)).unwrap();
    let expired = TenantProxy::start(&expired, TOKEN, &tenants).await.unwrap();
    let folder = Folder::new("leaks");
    let mut planted = plant(&folder, &pki, &other);
    let kubeconfig = fs::read_to_string(world.kubeconfig()).unwrap();
    let kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    let own = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    planted.whole("token of the controller", own);
    add_members(&world, &folder).await;
    world.deployment("php-apache", 1, "20m").await;
    world.apply(AUTOSCALER).await;
    world.deployment("shop", 1, "20m").await;
    world.apply(FLEET).await;

    let mut outputs = Outputs::default();
    for case in cases([&secured.url(), &proxy.url(), &expired.url()]) {
        if case.expected.0 == "Forbidden" {
            proxy.refuse_with(403);
        }
        run(&world, &folder, &case, &mut outputs).await;
    }
    let log = &outputs
        .0
        .iter()
        .rfind(|(from, _)| from.starts_with("log"))
        .unwrap()
        .1;
    for target in ["TRACE hyper_util::", "kube_client::", "foretide::"] {
        assert!(log.contains(target), "{target} in the log");
    }

    let admin = world.cluster.kubeconfig_path();
    let hub = [
        "--hub-kubeconfig",
        admin.to_str().unwrap(),
        "--allow-loopback",
    ];
    let mut command = foretide(&["members", "list"]);
    let members = outputs.of(command.args(hub)).await;
    assert!(members.contains("HTTP 401"), "{members}");
    outputs
        .of(foretide(&["members", "list", "-o", "json"]).args(hub))
        .await;
    outputs
        .of(foretide(&["members", "check", "refused"]).args(hub))
        .await;

    for (config, said) in refused_configurations() {
        let file = folder.write("config.yaml", &config);
        let file = file.to_str().unwrap();
        for mut command in [
            foretide(&["validate", "-f", file]),
            foretide(&["validate", "-o", "json", "-f", file]),
            foretide(&[
                "controller",
                "--log",
                "trace",
                "--kubeconfig",
                admin.to_str().unwrap(),
                "--config",
                file,
            ]),
        ] {
            let text = outputs.of(&mut command).await;
            assert!(text.contains(said), "{said:?} in {text}");
        }
    }
    let url = format!("https://foretide:{OF_URL}@127.0.0.1:9");
    let named = format!("east={url}");
    for (flag, value) in [("--prometheus", &url), ("--prometheus-endpoint", &named)] {
        let mut command = foretide(&["controller", "--log", "trace"]);
        let variable = flag
            .trim_start_matches("--")
            .replace('-', "_")
            .to_uppercase();
        command.env(format!("FORETIDE_{variable}"), value);
        let text = outputs.of(&mut command).await;
        assert!(text.contains("credentials"), "{text}");
    }

    let fleets: Api<FederatedHPA> = Api::namespaced(world.client.clone(), NAMESPACE);
    let fleet = fleets.get("shop").await.unwrap();
    let fleet = serde_json::to_string(&fleet).unwrap();
    assert!(fleet.contains(r#""name":"refused""#), "{fleet}");
    outputs.add("fleet", fleet);
    outputs
        .of(&mut foretide(&[
            "explain",
            "default/shop",
            "--kubeconfig",
            hub[1],
        ]))
        .await;

    let events: Api<Event> = Api::all(world.client.clone());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let is_ours = |event: &&Event| event.reporting_controller.as_deref() == Some("foretide");
    assert!(events.iter().any(|event| is_ours(&event)), "{events:?}");
    outputs.add("events", serde_json::to_string(&events).unwrap());
    let shown = planted.shown_in(&outputs);
    assert!(
        shown.is_empty(),
        "{} times: {:#?}",
        shown.len(),
        shown.iter().take(20).collect::<Vec<_>>()
    );
    world.assert_nothing_forbidden();
}

#[test]
fn a_secret_is_found_in_every_encoding() {
    let mut planted = Planted::default();
    planted.text("token", TOKEN);
    planted.key("key", &format!("-----BEGIN\n{API_KEY}\n-----END"));
    let shown = |text: String| {
        let mut outputs = Outputs::default();
        outputs.add("somewhere", format!("before {text} after"));
        !planted.shown_in(&outputs).is_empty()
    };
    for secret in [TOKEN, API_KEY] {
        assert!(shown(secret.to_owned()));
        for before in ["", "a", "ab", "abc"] {
            let encoded = STANDARD.encode(format!("{before}{secret}, and more"));
            assert!(shown(encoded), "{before:?}");
        }
        assert!(shown(format!("{:?}", secret.as_bytes())));
        let digits = secret.bytes().map(|byte| format!("{byte:02x}"));
        assert!(shown(digits.collect()));
    }
    assert!(shown(TOKEN[3..3 + PART].to_owned()));
    assert!(!shown(TOKEN[..PART - 1].to_owned()));
}
