use clap::{Args as _, Parser};

use super::{servers::ServerSections, *};
use foretide_api::ports::{
    Authorization, CertificateFiles, CredentialFiles, CustomHeader, ServerError, Setting,
};
use foretide_kube::Surroundings;

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    args: ControllerArgs,
}

/// The refusal of a value by its flag, in one line.
fn refusal(flags: &[&str]) -> String {
    let refused = Program::try_parse_from([&["foretide"], flags].concat());
    refused.map(|_| ()).unwrap_err().to_string()
}

fn config(flags: &[&str]) -> Result<Config, ConfigError> {
    let mut program = Program::parse_from([&["foretide"], flags].concat());
    program.args.kube.surroundings = Surroundings::POD;
    Config::try_from(program.args)
}

#[test]
fn defaults_watch_all_namespaces_in_cluster_every_15_seconds() {
    let config = config(&[]).unwrap();
    assert_eq!(config.access, KubeAccess::InCluster);
    assert_eq!(config.namespaces, Vec::<String>::new());
    assert_eq!(config.sync_period, SignedDuration::from_secs(15));
    assert_eq!(config.listen.to_string(), DEFAULT_LISTEN);
    assert_eq!(config.settings, Settings::default());
}

#[test]
fn namespaces_are_repeated_or_comma_separated() {
    let config = config(&["--namespace", "a,b", "--namespace", "c"]).unwrap();
    assert_eq!(config.namespaces, ["a", "b", "c"]);
}

#[test]
fn duplicate_and_empty_namespaces_are_dropped() {
    let config = config(&["--namespace", "b,a,,b", "--namespace", ""]).unwrap();
    assert_eq!(config.namespaces, ["a", "b"]);
}

#[test]
fn targets_in_kube_system_are_denied_unless_the_flag_says_otherwise() {
    let of = |flags: &[&str]| config(flags).unwrap().targets.denied_namespaces;
    let flag = "--deny-target-namespaces";
    assert_eq!(of(&[]), ["kube-system".to_owned()].into());
    assert_eq!(of(&[flag, "b,a"]), ["a".to_owned(), "b".to_owned()].into());
    assert_eq!(of(&[flag, ""]), [].into());
}

#[test]
fn metrics_need_a_token_unless_the_port_is_on_loopback() {
    let of = |flags: &[&str]| config(flags).unwrap().metrics_auth;
    let token = |audience: Option<&str>| MetricsAuth::Token {
        audience: audience.map(str::to_owned),
    };
    for (listen, expected) in [
        ("127.0.0.1:8080", MetricsAuth::Open),
        ("127.8.0.1:8080", MetricsAuth::Open),
        ("[::1]:8080", MetricsAuth::Open),
        ("0.0.0.0:8080", token(None)),
        ("[::]:8080", token(None)),
        ("[::ffff:127.0.0.1]:8080", token(None)),
        ("10.0.0.7:8080", token(None)),
    ] {
        let address = format!("--listen={listen}");
        assert_eq!(of(&[&address]), expected, "{listen}");
        assert_eq!(of(&[&address, "--metrics-auth=token"]), token(None));
        assert_eq!(of(&[&address, "--metrics-auth=none"]), MetricsAuth::Open);
    }
    assert_eq!(of(&[]), MetricsAuth::Open);
    let audience = ["--metrics-auth=token", "--metrics-audience=foretide"];
    assert_eq!(of(&audience), token(Some("foretide")));
    assert_eq!(
        of(&["--metrics-auth=token", "--metrics-audience="]),
        token(None)
    );
}

#[test]
fn every_kind_is_scaled_unless_the_flag_lists_some() {
    let of = |flags: &[&str]| config(flags).map(|config| config.targets.allowed_kinds);
    let flag = "--allow-target-kinds";
    let kind = |text: &str| text.parse::<TargetKind>().unwrap();
    assert_eq!(of(&[]), Ok([].into()));
    assert_eq!(of(&[flag, ""]), Ok([].into()));
    let both = [kind("Deployment.apps"), kind("ReplicationController")];
    let given = "ReplicationController,Deployment.apps";
    assert_eq!(of(&[flag, given]), Ok(both.into()));
    assert_eq!(
        of(&[flag, "deployments.apps"]).unwrap_err().to_string(),
        "--allow-target-kinds: expected KIND.GROUP such as Deployment.apps, or KIND in the core group, got \
         \"deployments.apps\""
    );
}

#[test]
fn the_rules_of_prometheus_adapter_come_from_a_file_or_from_a_config_map() {
    let of = |flags: &[&str]| config(flags).map(|config| config.adapter_config);
    let config_map = |key: &str| {
        Some(AdapterConfigSource::ConfigMap {
            namespace: "monitoring".into(),
            name: "adapter-config".into(),
            key: key.into(),
        })
    };
    let flag = "--prometheus-adapter-configmap";
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(
        of(&["--prometheus-adapter-config", "rules.yaml"]),
        Ok(Some(AdapterConfigSource::File("rules.yaml".into())))
    );
    assert_eq!(
        of(&[flag, "monitoring/adapter-config"]),
        Ok(config_map("config.yaml"))
    );
    assert_eq!(
        of(&[flag, "monitoring/adapter-config/rules"]),
        Ok(config_map("rules"))
    );
    for value in ["adapter-config", "a/b/c/d", "/b", "a/", "a/b/"] {
        let refusal = refusal(&[flag, value]);
        assert!(refusal.contains("expected NAMESPACE/NAME or"), "{refusal}");
    }
    let both = [
        "foretide",
        "--prometheus-adapter-config=a",
        "--prometheus-adapter-configmap=a/b",
    ];
    assert!(Program::try_parse_from(both).is_err());
}

#[test]
fn endpoints_have_unique_names_and_series_a_cluster_label() {
    let of = |flags: &[&str]| config(flags).map(|config| config.prometheus_endpoints);
    let flag = "--prometheus-endpoint";
    let both = [
        ("east", "https://thanos/e"),
        ("west", "http://10.0.0.7:9090"),
    ];
    let both = both.map(|(name, url)| (name.to_owned(), HistoryServer::at(url).unwrap()));
    let given = "east=https://thanos/e/,west=http://10.0.0.7:9090";
    assert_eq!(of(&[flag, given]), Ok(BTreeMap::from(both)));
    assert_eq!(of(&[]), Ok(BTreeMap::new()));
    for value in ["http://thanos", "=http://thanos", "http://thanos?a=b"] {
        assert_eq!(of(&[flag, value]), Err(ConfigError::EndpointName));
    }
    for value in ["east=thanos:9090", "east="] {
        let error = of(&[flag, value]).unwrap_err().to_string();
        let expected = "--prometheus-endpoint east=URL: expected http://HOST:PORT";
        assert!(error.starts_with(expected), "{error}");
    }
    let twice = of(&[flag, "a=http://b", flag, "a=http://c"]);
    let name = "a".to_owned();
    assert_eq!(twice, Err(ConfigError::EndpointTwice { name }));
    let label =
        |value: &str| config(&["--prometheus-cluster-label", value]).map(|c| c.cluster_label);
    assert_eq!(config(&[]).unwrap().cluster_label, "cluster");
    assert_eq!(label("k8s_cluster"), Ok("k8s_cluster".to_owned()));
    for value in ["", "a-b", "__name__", "namespace", "9a"] {
        let refusal = refusal(&["--prometheus-cluster-label", value]);
        assert!(
            refusal.contains("expected the name of a label"),
            "{refusal}"
        );
    }
}

#[test]
fn a_leader_is_elected_on_request_with_the_durations_of_client_go() {
    let of = |flags: &[&str]| config(flags).map(|config| config.election);
    assert_eq!(of(&[]), Ok(None));
    let timing = Timing::default();
    let namespace = None;
    assert_eq!(
        of(&["--leader-elect"]),
        Ok(Some(Election { namespace, timing }))
    );
    let timing = Timing {
        lease_duration: Duration::from_mins(1),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(15),
    };
    let namespace = Some("ops".to_owned());
    let slow = [
        "--leader-elect",
        "--leader-elect-namespace=ops",
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=40s",
        "--leader-elect-retry-period=15s",
    ];
    assert_eq!(of(&slow), Ok(Some(Election { namespace, timing })));
    let outside = ["--leader-elect", "--kubeconfig=k"];
    assert_eq!(of(&outside), Err(ConfigError::LeaseNamespace));
}

#[test]
fn durations_with_which_two_could_write_or_none_could_are_rejected() {
    for (lease, renew, retry, want) in [
        ("15s", "10s", "2s", None),
        ("10s", "10s", "2s", Some(ConfigError::LeaseDuration)),
        ("10s", "15s", "2s", Some(ConfigError::LeaseDuration)),
        ("15500ms", "10s", "2s", Some(ConfigError::LeaseDuration)),
        ("60s", "36s", "30s", Some(ConfigError::RenewDeadline)),
        ("60s", "37s", "30s", None),
        // A write takes up to five seconds, and must fit between two renewals.
        ("15s", "7s", "2s", Some(ConfigError::RenewDeadline)),
        ("15s", "8s", "2s", None),
    ] {
        let flags = [
            "--leader-elect-lease-duration",
            lease,
            "--leader-elect-renew-deadline",
            renew,
            "--leader-elect-retry-period",
            retry,
        ];
        assert_eq!(config(&flags).err(), want, "{flags:?}");
    }
}

#[test]
fn invalid_values_are_rejected_with_the_name_of_the_flag() {
    for (flag, value, expected) in [
        ("--sync-period", "0s", "longer than zero, for example 15s"),
        ("--leader-elect-retry-period", "0s", "longer than zero"),
        ("--member-lost-after", "0s", "longer than zero"),
        ("--hpa-tolerance", "NaN", "a ratio of at least 0"),
        ("--hpa-tolerance", "-0.1", "a ratio of at least 0"),
        ("--hpa-initial-readiness-delay", "-30s", "zero or more"),
        ("--member-secret-label", "=true", "KEY=VALUE or KEY"),
        ("--member-secret-label", "a=b,c=d", "KEY=VALUE or KEY"),
    ] {
        let refusal = refusal(&[&format!("{flag}={value}")]);
        let start = format!("error: invalid value '{value}' for '{flag} ");
        assert!(refusal.starts_with(&start), "{refusal}");
        assert!(refusal.contains(expected), "{refusal}");
    }
    let expected = ConfigError::Server {
        origin: "--prometheus (or FORETIDE_PROMETHEUS)".into(),
        problem: ServerError::Url,
    };
    assert_eq!(
        config(&["--prometheus", "prom:9090"]).unwrap_err(),
        expected
    );
}

#[test]
fn every_flag_has_a_variable_of_its_name() {
    let command = ControllerArgs::augment_args(clap::Command::new("foretide"));
    for arg in command.get_arguments() {
        let flag = arg.get_long().unwrap().replace('-', "_").to_uppercase();
        let variable = format!("FORETIDE_{flag}");
        assert_eq!(arg.get_env(), Some(variable.as_ref()));
    }
}

const HEAD: &str = "apiVersion: foretide.io/v1alpha1\nkind: ControllerConfig\n";

fn parse(text: &str) -> Result<ConfigFile, FileError> {
    let path = std::path::Path::new("/etc/foretide/config.yaml");
    ConfigFile::parse(path, &format!("{HEAD}{text}"))
}

/// The configuration of a file with these flags.
fn config_of(text: &str, flags: &[&str]) -> Config {
    let words = [&["foretide"], flags].concat();
    let words: Vec<_> = words.into_iter().map(Into::into).collect();
    let args = parse(text).unwrap().complete(&words).unwrap();
    Config::try_from(args).unwrap()
}

#[test]
fn flags_are_fields_of_the_file_and_beat_it() {
    let text = "syncPeriod: 30s\nnamespace: [a, no]\nhpaTolerance: 0.25\nnoObjectMetrics: true\npromqlScope: any\n";
    let of_file = config_of(text, &[]);
    assert_eq!(of_file.sync_period, SignedDuration::from_secs(30));
    // `no` is a text here, although YAML 1.1 took it for a boolean.
    assert_eq!(of_file.namespaces, ["a", "no"]);
    assert!((of_file.settings.tolerance - 0.25).abs() < f64::EPSILON);
    assert!(!of_file.object_metrics);
    assert_eq!(of_file.promql_scope, ScopeArg::Any);
    let flags = [
        "--sync-period=1m",
        "--namespace=b",
        "--no-object-metrics=false",
    ];
    let of_flags = config_of(text, &flags);
    assert_eq!(of_flags.sync_period, SignedDuration::from_mins(1));
    assert_eq!(of_flags.namespaces, ["b"]);
    assert!(of_flags.object_metrics);
    assert!((of_flags.settings.tolerance - 0.25).abs() < f64::EPSILON);
}

#[test]
fn a_flag_beats_a_field_that_it_excludes() {
    let text = "prometheusAdapterConfigmap: monitoring/rules\n";
    let flag = "--prometheus-adapter-config=rules.yaml";
    let of_flag = config_of(text, &[flag]).adapter_config;
    assert_eq!(
        of_flag,
        Some(AdapterConfigSource::File("rules.yaml".into()))
    );
    let of_file = config_of("prometheusAdapterConfig: rules.yaml\n", &[]).adapter_config;
    assert_eq!(
        of_file,
        Some(AdapterConfigSource::File(beside("rules.yaml")))
    );
    let flag = "--prometheus-adapter-configmap=monitoring/rules";
    let of_flag = config_of("prometheusAdapterConfig: rules.yaml\n", &[flag]).adapter_config;
    assert!(matches!(
        of_flag,
        Some(AdapterConfigSource::ConfigMap { .. })
    ));
}

#[test]
fn a_file_that_is_no_configuration_is_refused_with_line_and_field() {
    for (text, line, message) in [
        ("syncInterval: 30s\n", 3, "unknown field syncInterval"),
        ("config: other.yaml\n", 3, "unknown field config"),
        (
            "syncPeriod: thirty\n",
            3,
            "syncPeriod: invalid value 'thirty'",
        ),
        (
            "syncPeriod: 0s\n",
            3,
            "expected a duration longer than zero",
        ),
        ("logJson: 3\n", 3, "expected true or false"),
        ("namespace: a\n", 3, "expected a list"),
        ("promqlScope: all\n", 3, "[possible values: namespace, any]"),
        ("prometheus: {url: http://p, token: t}\n", 3, "token"),
        (
            "prometheus:\n  basicAuth: {username: u}\n",
            4,
            "passwordFile",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.to_string().contains(message), "{text}: {error}");
        let FileError::Content { line: found, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(found, Some(line), "{text}: {error}");
    }
    let path = std::path::Path::new("a.yaml");
    assert!(ConfigFile::parse(path, "syncPeriod: 1s\n").is_ok());
    for text in [
        "kind: ControllerConfig\nsyncPeriod: 1s\n",
        "apiVersion: v1\nkind: ControllerConfig\n",
    ] {
        let error = ConfigFile::parse(path, text).unwrap_err().to_string();
        assert!(
            error.contains("expected apiVersion: foretide.io/v1alpha1"),
            "{error}"
        );
    }
}

const SERVERS: &str = "\
prometheus:
  url: https://mimir/prometheus/
  bearerTokenFile: secret/token
  headers: [{name: X-Scope-OrgID, value: team-a}, {name: X-Key, valueFile: /run/key}]
prometheusEndpoints:
  west:
    url: https://west
    basicAuth: {usernameFile: user, passwordFile: password}
    tls: {caFile: ca.crt, certFile: tls.crt, keyFile: tls.key}
";

fn beside(file: &str) -> PathBuf {
    format!("/etc/foretide/{file}").into()
}

fn server(url: &str, credentials: CredentialFiles) -> HistoryServer {
    HistoryServer::new(url, credentials).unwrap()
}

fn credentials_of_hub() -> CredentialFiles {
    let header = |name: &str, value| CustomHeader {
        name: name.to_owned(),
        value,
    };
    CredentialFiles {
        authorization: Some(Authorization::Bearer {
            token: beside("secret/token"),
        }),
        headers: vec![
            header("X-Scope-OrgID", Setting::Value("team-a".to_owned())),
            header("X-Key", Setting::File("/run/key".into())),
        ],
        ..CredentialFiles::default()
    }
}

fn credentials_of_west() -> CredentialFiles {
    CredentialFiles {
        authorization: Some(Authorization::Basic {
            username: Setting::File(beside("user")),
            password: beside("password"),
        }),
        headers: Vec::new(),
        ca: Some(beside("ca.crt")),
        client_certificate: Some(CertificateFiles {
            certificate: beside("tls.crt"),
            key: beside("tls.key"),
        }),
    }
}

#[test]
fn servers_have_credentials_in_files_beside_the_configuration() {
    let config = config_of(SERVERS, &[]);
    let hub = server("https://mimir/prometheus", credentials_of_hub());
    assert_eq!(config.prometheus, Some(hub));
    let west = server("https://west", credentials_of_west());
    assert_eq!(config.prometheus_endpoints["west"], west);
    assert_eq!(parse(SERVERS).unwrap().credential_files().len(), 7);
}

#[test]
fn a_flag_replaces_the_address_of_a_server_and_adds_servers() {
    let flags = [
        "--prometheus=https://other",
        "--prometheus-endpoint=west=https://w,east=http://e",
    ];
    let config = config_of(SERVERS, &flags);
    let hub = server("https://other", credentials_of_hub());
    assert_eq!(config.prometheus, Some(hub));
    let all: Vec<_> = config.prometheus_endpoints.into_values().collect();
    let east = HistoryServer::at("http://e").unwrap();
    assert_eq!(all, [east, server("https://w", credentials_of_west())]);
}

/// Unusable sections, each with its error.
const UNUSABLE: [[&str; 2]; 15] = [
    [
        "prometheus: {url: 'http://p', bearerTokenFile: t}",
        "prometheus.url: the URL is not encrypted, and a bearer token would be sent to it; use https",
    ],
    [
        "prometheus: {url: 'http://p', headers: [{name: X-Key, valueFile: f}]}",
        "a secret header would be sent to it",
    ],
    [
        "prometheus: {url: 'http://p', tls: {caFile: c}}",
        "prometheus.url: tls.caFile has no effect on an http URL; use https",
    ],
    [
        "prometheus: {url: 'https://user:pass@p'}",
        "prometheus.url: the URL holds a user, a password, a query or a fragment",
    ],
    [
        "prometheus: {url: p}",
        "prometheus.url: expected http://HOST:PORT or https://HOST:PORT",
    ],
    [
        "prometheus: {bearerTokenFile: t}",
        "prometheus: expected a url",
    ],
    [
        "prometheusEndpoints: {west: {basicAuth: {username: u, passwordFile: p}}}",
        "prometheusEndpoints.west: expected a url",
    ],
    [
        "prometheus: {url: 'https://p', bearerTokenFile: t, basicAuth: {username: u, passwordFile: p}}",
        "prometheus: expected either bearerTokenFile or basicAuth, found both",
    ],
    [
        "prometheus: {url: 'https://p', basicAuth: {passwordFile: p}}",
        "prometheus.basicAuth: expected either username or usernameFile",
    ],
    [
        "prometheus: {url: 'https://p', tls: {certFile: c}}",
        "prometheus.tls: expected certFile and keyFile, or neither",
    ],
    [
        "prometheus: {url: 'https://p', headers: [{name: X-A, value: a}, {name: X-B}]}",
        "prometheus.headers[1]: expected either value or valueFile",
    ],
    [
        "prometheus: {url: 'https://p', headers: [{name: 'a b', value: a}]}",
        "prometheus.headers[0].name: expected the name of an HTTP header, got \"a b\"",
    ],
    [
        "prometheus: {url: 'https://p', headers: [{name: authorization, value: a}]}",
        "prometheus.headers[0].name: authorization is set by Foretide; see bearerTokenFile and basicAuth",
    ],
    [
        "prometheus: {url: 'https://p', headers: [{name: X-A, value: a}, {name: x-a, value: b}]}",
        "prometheus.headers[1]: expected each header once",
    ],
    [
        "prometheus: {url: 'https://p', basicAuth: {username: 'a:b', passwordFile: p}}",
        "prometheus.basicAuth.username: expected a username without a colon",
    ],
];

#[test]
fn sections_that_cannot_be_used_are_refused_with_their_field() {
    for [text, message] in UNUSABLE {
        let error = parse(text).unwrap().config().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
        assert!(!error.contains("pass@"), "{error}");
    }
    // In the cluster network, the name of a tenant is no secret.
    let plain = "prometheus: {url: 'http://mimir', headers: [{name: X-Scope-OrgID, value: a}]}";
    assert!(parse(plain).unwrap().config().is_ok());
    let none = ServerSections::default().with_urls(None, Vec::new());
    assert!(none.unwrap().hub.is_none());
}

#[test]
fn an_http_url_of_a_flag_gets_no_secret_of_the_file() {
    let text = "prometheus: {url: 'https://p', bearerTokenFile: t}";
    let args = ["foretide", "--prometheus=http://p"].map(Into::into);
    let args = parse(text).unwrap().complete(&args).unwrap();
    assert_eq!(
        Config::try_from(args).unwrap_err().to_string(),
        "--prometheus (or FORETIDE_PROMETHEUS): the URL is not encrypted, and a bearer token would be sent to it; use \
         https"
    );
}

#[test]
fn two_fields_that_exclude_each_other_are_refused() {
    let text = "prometheusAdapterConfig: rules.yaml\nprometheusAdapterConfigmap: a/b\n";
    let error = parse(text).unwrap().config().unwrap_err();
    assert_eq!(error, ConfigError::TwoAdapterConfigs);
}

#[test]
fn a_url_is_not_shown_because_it_may_have_a_password() {
    for flags in [
        ["--prometheus=https://user:secret"],
        ["--prometheus=https://user:secret@p?a=b"],
        ["--prometheus-endpoint=west=https://u:secret,secret@h"],
        ["--prometheus-endpoint=https://u:secret@h?a=b"],
    ] {
        let error = config(&flags).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{flags:?}: {error}");
    }
}
