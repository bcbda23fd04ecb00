use proptest::prelude::*;

use super::*;
use Outcome::{Bound, Refused};

const WEEK: Duration = Duration::from_hours(7 * 24);

fn restricted(text: &str) -> Result<String, AdmitError> {
    admit(text, "shop", WEEK, PromqlScope::Namespace).map(|query| query.to_string())
}

#[test]
fn the_namespace_is_added_to_every_selector() {
    for (text, expected) in [
        ("up", r#"up{namespace="shop"}"#),
        (
            r#"sum(rate(http_requests_total{job="web"}[5m])) by (pod)"#,
            r#"sum by (pod) (rate(http_requests_total{job="web",namespace="shop"}[5m]))"#,
        ),
        (
            r#"up{namespace="shop",job="x"}"#,
            r#"up{job="x",namespace="shop"}"#,
        ),
        (r#"{__name__="up"}"#, r#"{__name__="up",namespace="shop"}"#),
        ("a / on (pod) group_left () b", {
            r#"a{namespace="shop"} / on (pod) group_left () b{namespace="shop"}"#
        }),
        (
            "topk(scalar(secret), up)",
            r#"topk(scalar(secret{namespace="shop"}), up{namespace="shop"})"#,
        ),
        ("up offset 1d + 2", r#"up{namespace="shop"} offset 1d + 2"#),
        ("sum by () (up)", r#"sum(up{namespace="shop"})"#),
        (
            "a + ignoring () b",
            r#"a{namespace="shop"} + b{namespace="shop"}"#,
        ),
        ("a and b", r#"a{namespace="shop"} and b{namespace="shop"}"#),
        ("-(a + b) ^ 2 > bool 1e3", {
            r#"-(a{namespace="shop"} + b{namespace="shop"}) ^ 2 > bool 1000"#
        }),
        (
            r#"label_replace(up, "pod", "$1", "instance", "(.*):.*")"#,
            r#"label_replace(up{namespace="shop"}, "pod", "$1", "instance", "(.*):.*")"#,
        ),
        (
            "histogram_quantile(0.9, sum(rate(b_bucket[5m])) by (le))",
            r#"histogram_quantile(0.9, sum by (le) (rate(b_bucket{namespace="shop"}[5m])))"#,
        ),
    ] {
        assert_eq!(restricted(text).as_deref(), Ok(expected), "{text}");
    }
}

/// The outcome of an attack: refused, or bound to the namespace.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Refused,
    Bound,
}

const ATTACKS: [(&str, Outcome); 43] = [
    (r#"up{namespace="other"}"#, Refused),
    (r#"up{namespace!="shop"}"#, Refused),
    (r#"up{namespace=~".*"}"#, Refused),
    (r#"up{namespace=~"shop|other"}"#, Refused),
    (r#"up{namespace!~"shop"}"#, Refused),
    (r#"up{namespace=""}"#, Refused),
    (r#"up{"namespace"="other"}"#, Refused),
    (r#"up{namespace="\x6fther"}"#, Refused),
    (r#"up{exported_namespace="other"}"#, Refused),
    (r#"up{kubernetes_namespace="other"}"#, Refused),
    (r#"up{namespace="shop",namespace="other"}"#, Refused),
    (r#"up{namespace="shop" or namespace="other"}"#, Refused),
    (r#"up{job="a" or job="b"}"#, Refused),
    (r#"up) or sum(secret{namespace="other"}) #"#, Refused),
    (r#"sum(up) or sum(secret{namespace="other"})"#, Refused),
    ("sum(up) or sum(secret)", Bound),
    (r#"up # {namespace="other"}"#, Bound),
    ("up #\n or secret", Bound),
    ("up #\r or secret", Bound),
    (r#"{__name__=~".+"}"#, Refused),
    (r#"{__name__!="up"}"#, Refused),
    (r#"{__name__!~"x"}"#, Refused),
    (r#"{job="x"}"#, Refused),
    (r#"{__name__="a b"}"#, Refused),
    (r#"{"up or secret", job="x"}"#, Refused),
    (r#"{"up} or secret{", job="x"}"#, Refused),
    (r#"up{__name__="secret"}"#, Refused),
    ("max_over_time(secret[1d:1m])", Refused),
    ("sum_over_time((secret)[1h:])", Refused),
    ("up @ 1700000000", Refused),
    ("up @ end()", Refused),
    ("up offset -1h", Refused),
    ("up offset 52w", Refused),
    ("rate(up[52w])", Refused),
    (
        r#"label_replace(up, "namespace", "other", "", "")"#,
        Refused,
    ),
    (r#"label_join(up, ("namespace"), "", "x")"#, Refused),
    (
        r#"label_replace(up, "x", "$1", "namespace", "(.*)")"#,
        Refused,
    ),
    (r#"count_values("namespace", up)"#, Refused),
    ("topk(scalar(sum(secret)), up)", Bound),
    ("quantile(scalar(secret), up)", Bound),
    ("info(up)", Refused),
    ("absent(secret)", Bound),
    (r#"sum by ("a) or secret (") (up)"#, Refused),
];

fn outcome(text: &str) -> Outcome {
    match restricted(text) {
        Err(_) => Refused,
        Ok(query) => {
            assert!(is_bound(&query, "shop"), "{text} -> {query}");
            Bound
        }
    }
}

#[test]
fn every_attack_is_rejected_or_bound_to_the_namespace() {
    for (text, expected) in ATTACKS {
        assert_eq!(outcome(text), expected, "{text}");
    }
}

#[test]
fn a_query_over_the_limits_is_rejected() {
    let nested = format!("{}up{}", "(".repeat(600), ")".repeat(600));
    let negated = format!("{}up", "-".repeat(1500));
    let added = vec!["1"; 900].join("+");
    let chained = vec!["1"; 100].join("+");
    let long = format!("up{{a=\"{}\"}}", "x".repeat(3000));
    let wide = ["up"; 9].join(" + ");
    assert_eq!(restricted(&nested), Err(AdmitError::TooDeep));
    assert_eq!(restricted(&negated), Err(AdmitError::TooManyOperators));
    assert_eq!(restricted(&added), Err(AdmitError::TooManyOperators));
    assert_eq!(restricted(&chained), Err(AdmitError::TooDeep));
    assert_eq!(
        restricted(&long),
        Err(AdmitError::TooLong {
            bytes: 3008,
            limit: 2048
        })
    );
    assert_eq!(restricted(&wide), Err(AdmitError::TooManySelectors));
}

/// The query of one member.
fn member_query(text: &str, scope: PromqlScope) -> Result<String, AdmitError> {
    let query = admit(text, "shop", WEEK, scope)?;
    let matcher = BuiltMatcher::equal("cluster", "east").unwrap();
    with_matcher(&query, &matcher).map(|query| query.to_string())
}

#[test]
fn a_long_chain_of_operators_is_rejected_before_it_is_parsed() {
    for between in ["+", " or ", "-", ">= bool ", "==", "!=", " unless\n"] {
        let chain = |operands| vec!["x"; operands].join(between);
        assert_eq!(
            parse(&chain(258)),
            Err(AdmitError::TooManyOperators),
            "{between}"
        );
        assert!(parse(&chain(257)).is_ok(), "{between}");
    }
    let chain = vec!["x"; 8001].join("+");
    let negated = format!("{}x", "-".repeat(8000));
    for text in [&chain, &negated] {
        assert_eq!(
            member_query(text, PromqlScope::Any),
            Err(AdmitError::TooManyOperators)
        );
        let error = member_query(text, PromqlScope::Namespace).unwrap_err();
        assert!(matches!(error, AdmitError::TooLong { .. }), "{error}");
    }
    let chain = vec!["x"; 200].join("+");
    assert_eq!(
        member_query(&chain, PromqlScope::Any).as_deref(),
        Ok(vec![r#"x{cluster="east"}"#; 200].join(" + ").as_str())
    );
    let conditions = vec![r#"a!="+""#; 300].join(",");
    assert!(member_query(&format!("x{{{conditions}}}"), PromqlScope::Any).is_ok());
}

#[test]
fn text_that_would_crash_the_parser_is_rejected_before_it_is_parsed() {
    for text in [
        "rate(up[1e300])",
        "rate(up[ 99999999999999999999999999 ])",
        "up offset 1e300",
        "up offset 1e+300",
        "up OFFSET + inf",
        "up offset nan",
        "up offset #\n 1e300",
        "rate(up[0x10])",
        "rate(up[5])",
    ] {
        assert!(
            matches!(restricted(text), Err(AdmitError::Duration(_))),
            "{text}"
        );
    }
    let label = r#"sum by (offset) (up{offset="5"})"#;
    assert_eq!(
        restricted(label).as_deref(),
        Ok(r#"sum by (offset) (up{namespace="shop",offset="5"})"#)
    );
    assert_eq!(
        restricted(r#"up{a="[5] offset 3 ((((#"}"#).map(|_| ()),
        Ok(())
    );
}

#[test]
fn an_error_names_what_is_accepted() {
    for (text, message) in [
        ("", "the query is empty"),
        ("up{namespace=\"other\"}", {
            "the query may read namespace \"shop\" only: remove the matcher on label \
             \"namespace\", which is added automatically"
        }),
        (
            "up[1h:1m]",
            "subqueries are not accepted; use a recording rule",
        ),
        (
            "up offset 8d",
            "a range or offset of 691200 s reaches back further than the history of 604800 s",
        ),
        (
            "rate(up[5])",
            "duration \"5\" has no unit; write it as 5m or 30s",
        ),
    ] {
        let error = restricted(text).unwrap_err();
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn scope_any_admits_a_query_unchanged() {
    let text = r#" max_over_time(sum(x{namespace=~".*"})[1h:1m]) "#;
    let query = admit(text, "shop", WEEK, PromqlScope::Any).unwrap();
    assert_eq!(query.as_str(), text.trim());
    let long = "x".repeat(16 * 1024 + 1);
    assert!(admit(&long, "shop", WEEK, PromqlScope::Any).is_err());
}

#[test]
fn an_admitted_query_is_admitted_again_unchanged() {
    let once = restricted(r#"sum(rate(a{b=~"c.+"}[5m])) / sum(d) or vector(0)"#).unwrap();
    assert_eq!(restricted(&once), Ok(once));
}

#[test]
fn promql_raw_guard_binds_or_rejects_arbitrary_text() {
    bolero::check!()
        .with_iterations(3000)
        .with_type::<String>()
        .for_each(|text| {
            if let Ok(query) = restricted(text) {
                assert!(is_bound(&query, "shop"), "{text} -> {query}");
            }
        });
}

/// Words of the language in random order: closer to queries than arbitrary text.
fn word_salad() -> impl Strategy<Value = String> {
    let words = vec![
        "up",
        "secret",
        "(",
        ")",
        "{",
        "}",
        "[5m]",
        "[1h:1m]",
        "offset",
        "1h",
        "-",
        "+",
        "or",
        "and",
        "@",
        "end()",
        "sum",
        "by",
        "on",
        "ignoring",
        "group_left",
        "job",
        "namespace",
        "=",
        "=~",
        "!=",
        "\"x\"",
        "'shop'",
        "`\\`",
        ",",
        "rate(",
        "topk(",
        "1e9",
        "inf",
        "#\n",
        "\"\\\"",
        "__name__",
        "fill(",
        "bool",
        "==",
    ];
    let parts = vec![
        "up",
        "sum(secret)",
        "rate(secret[5m])",
        "up{job=\"x\"}",
        "topk(scalar(secret), up)",
        "-up",
        "(up or secret)",
        "1",
    ];
    let operators = vec!["+", "or", "and", "/ on (job)", "> bool", "unless", "#\n +"];
    let word = prop_oneof![
        2 => prop::sample::select(words).prop_map(str::to_owned),
        3 => (prop::sample::select(parts), prop::sample::select(operators))
            .prop_map(|(part, operator)| format!("{part} {operator}")),
    ];
    prop::collection::vec(word, 0..6).prop_map(|words| words.join(" ") + " secret")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn random_words_are_bound_or_rejected(text in word_salad()) {
        if let Ok(query) = restricted(&text) {
            prop_assert!(is_bound(&query, "shop"), "{} -> {}", text, query);
        }
    }

    #[test]
    fn any_namespace_is_the_only_one_that_is_read(namespace in ".{1,40}", value in ".{0,40}") {
        let value = value.replace(['\\', '"', '\n'], "_");
        let text = format!("sum(a{{x=\"{value}\"}}) / b");
        let query = admit(&text, &namespace, WEEK, PromqlScope::Namespace);
        prop_assert!(is_bound(query.unwrap().as_str(), &namespace));
    }
}
