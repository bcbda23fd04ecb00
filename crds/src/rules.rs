//! Checks an object as the API server does, without an API server.
//!
//! [`Rules`] checks what a definition says (shape, sizes, and the CEL rules with their messages, by their twins in Rust),
//! and what the server demands of the metadata of every kind, on plain JSON. Defaults are applied before the CEL rules, as
//! the server does.
//! What only the service can know (time zones, cron fields, PromQL) is checked there.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::CustomResourceExt;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

use crate::{manifests::definition, twins};

/// One thing that the API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{field}: {message}")]
pub struct Violation {
    /// Path of the field, such as `spec.crons[0].start`.
    pub field: String,
    /// Expectation that the value breaks, and what to do.
    pub message: String,
}

/// The rules of one kind.
///
/// ```
/// use foretide_crds::{EffectiveHorizontalPodAutoscaler, Rules};
/// use serde_json::json;
///
/// let rules = Rules::of::<EffectiveHorizontalPodAutoscaler>();
/// let target = json!({"kind": "Deployment", "name": "web"});
/// let violations = rules.check(&json!({"spec": {"scaleTargetRef": target, "maxReplicas": 0}}));
/// let fields: Vec<_> = violations.iter().map(|violation| &*violation.field).collect();
/// assert_eq!(fields, ["metadata.name", "spec.maxReplicas"]);
/// ```
#[derive(Debug)]
pub struct Rules {
    schema: JSONSchemaProps,
}

// === impl Rules ===

impl Rules {
    /// The rules of a kind.
    pub fn of<K: CustomResourceExt>() -> Self {
        let mut versions = definition::<K>().spec.versions.into_iter();
        let mut schema = versions
            .find_map(|version| version.schema?.open_api_v3_schema)
            .unwrap_or_default();
        // A definition leaves the metadata to the server, which has the same for every kind.
        schema
            .properties
            .get_or_insert_default()
            .insert("metadata".to_owned(), schema_of::<ObjectMeta>());
        Self { schema }
    }

    /// Everything the API server would refuse in `object`; empty if it would accept it.
    ///
    /// As in the server, the CEL rules are asked only about an object of the right shape.
    pub fn check(&self, object: &Value) -> Vec<Violation> {
        let mut object = object.clone();
        // As the server does for fields that are not nullable; see `manifests`.
        drop_nulls(&mut object);
        let mut found = Vec::new();
        shape("", &self.schema, &object, &mut found);
        // As the server does: rules may rely on the types of the schema.
        if found.is_empty() {
            names(&object, &mut found);
            apply_defaults(&self.schema, &mut object);
            validate("", &self.schema, &object, &mut found);
        }
        found
    }
}

/// The schema of a type of the API.
pub(crate) fn schema_of<T: JsonSchema>() -> JSONSchemaProps {
    let schema = SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<T>();
    let schema = serde_json::to_value(schema).unwrap_or_default();
    serde_json::from_value(schema).unwrap_or_default()
}

/// Adds a name that is missing, and names that the server does not accept.
fn names(object: &Value, found: &mut Vec<Violation>) {
    let name = match object["metadata"]["name"].as_str() {
        Some(name) if name.len() > 253 || !name.split('.').all(is_label) => Some(format!(
            "must be lowercase letters, digits, '-' and '.', with a letter or digit at both ends, at most 253 \
             characters, not {name:?}"
        )),
        Some(_) => None,
        // The API server makes a name of it.
        None if object["metadata"]["generateName"].is_string() => None,
        None => Some("is required".to_owned()),
    };
    found.extend(name.map(|message| Violation {
        field: "metadata.name".to_owned(),
        message,
    }));
    if let Some(namespace) = object["metadata"]["namespace"].as_str()
        && (namespace.len() > 63 || !is_label(namespace))
    {
        found.push(Violation {
            field: "metadata.namespace".to_owned(),
            message: format!(
                "must be lowercase letters, digits and '-', with a letter or digit at both ends, at most 63 characters, \
                 not {namespace:?}"
            ),
        });
    }
}

/// Returns true if a text is a label of RFC 1123, of any length.
fn is_label(text: &str) -> bool {
    text.starts_with(is_edge)
        && text.ends_with(is_edge)
        && text.chars().all(|c| is_edge(c) || c == '-')
}

/// Returns true if a label may begin and end with this letter.
fn is_edge(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Drops members that are null, as the server does where null is not allowed.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Adds the default of every field that is missing.
fn apply_defaults(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in schema.properties.iter().flatten() {
                if let Some(default) = &property.default
                    && !members.contains_key(name)
                {
                    members.insert(name.clone(), default.0.clone());
                }
            }
            // After the loop above: as in the API server, a default that was added gets the defaults inside it, too.
            for (name, member) in members {
                if let Some(property) = property(schema, name) {
                    apply_defaults(property, member);
                }
            }
        }
        Value::Array(values) => {
            if let Some(items) = items(schema) {
                for value in values {
                    apply_defaults(items, value);
                }
            }
        }
        _ => {}
    }
}

/// Adds the CEL rules that `value` and what is inside it break.
fn validate(path: &str, schema: &JSONSchemaProps, value: &Value, found: &mut Vec<Violation>) {
    let rules = schema.x_kubernetes_validations.iter().flatten();
    found.extend(rules.filter_map(|rule| violation(path, rule, value)));
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(property) = property(schema, name) {
                    validate(&below(path, name), property, member, found);
                }
            }
        }
        Value::Array(values) => {
            if let Some(items) = items(schema) {
                for (i, value) in values.iter().enumerate() {
                    validate(&format!("{path}[{i}]"), items, value, found);
                }
            }
        }
        _ => {}
    }
}

/// Violation of `rule` by `value`, if there is one.
fn violation(path: &str, rule: &ValidationRule, value: &Value) -> Option<Violation> {
    // A rule without a twin, which the tests would find, is left to the server.
    if twins::holds(&rule.rule, value)? {
        return None;
    }
    let message = rule.message.clone().unwrap_or_default();
    let field = format!("{path}{}", rule.field_path.as_deref().unwrap_or_default());
    Some(Violation { field, message })
}

/// The schema of the field `name`.
pub(crate) fn property<'s>(schema: &'s JSONSchemaProps, name: &str) -> Option<&'s JSONSchemaProps> {
    let known = schema.properties.as_ref().and_then(|p| p.get(name));
    match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => known.or(Some(values)),
        _ => known,
    }
}

/// The schema of the items of a list.
pub(crate) fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items),
        _ => None,
    }
}

/// Path of the field `name` of the object at `path`.
pub(crate) fn below(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Adds what is wrong with the shape of `value`: types, sizes, missing and unknown fields.
fn shape(path: &str, schema: &JSONSchemaProps, value: &Value, found: &mut Vec<Violation>) {
    let mut refuse = |message: String| {
        found.push(Violation {
            field: path.to_owned(),
            message,
        });
    };
    // One message for a value of another type: sizes and fields mean nothing for it.
    if let Some(expected) = wrong_type(schema, value) {
        return refuse(format!("expected {expected}, found {value}"));
    }
    if let Some(allowed) = schema
        .enum_
        .as_ref()
        .filter(|e| e.iter().all(|v| v.0 != *value))
    {
        let allowed: Vec<_> = allowed.iter().map(|v| v.0.to_string()).collect();
        return refuse(format!(
            "must be one of {}, not {value}",
            allowed.join(", ")
        ));
    }
    match value {
        Value::String(text) => {
            // The server counts characters, not bytes.
            let (most, has) = (schema.max_length, text.chars().count());
            too_much(most, has, "characters")
                .into_iter()
                .for_each(refuse);
        }
        Value::Array(values) => {
            too_much(schema.max_items, values.len(), "items")
                .into_iter()
                .for_each(refuse);
            if let Some(of) = items(schema) {
                for (i, value) in values.iter().enumerate() {
                    shape(&format!("{path}[{i}]"), of, value, found);
                }
            }
        }
        Value::Object(members) => {
            too_much(schema.max_properties, members.len(), "entries")
                .into_iter()
                .for_each(refuse);
            fields(path, schema, members, found);
        }
        _ => {}
    }
}

/// Adds missing and unknown fields, and what is wrong inside the known ones.
fn fields(
    path: &str,
    schema: &JSONSchemaProps,
    members: &Map<String, Value>,
    found: &mut Vec<Violation>,
) {
    for name in schema
        .required
        .iter()
        .flatten()
        .filter(|name| !members.contains_key(*name))
    {
        found.push(Violation {
            field: below(path, name),
            message: "is required".to_owned(),
        });
    }
    let open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, member) in members {
        match (property(schema, name), &schema.properties) {
            (Some(known), _) => shape(&below(path, name), known, member, found),
            // The server adds what every kind has.
            (None, Some(_)) if !(open || path.is_empty() && is_common(name)) => {
                let message = "no such field; check the spelling and the indentation".to_owned();
                found.push(Violation {
                    field: below(path, name),
                    message,
                });
            }
            (None, _) => {}
        }
    }
}

fn is_common(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind")
}

fn too_much(most: Option<i64>, has: usize, of_what: &str) -> Option<String> {
    let most = most.filter(|most| usize::try_from(*most).is_ok_and(|most| has > most))?;
    Some(format!("must have at most {most} {of_what}, has {has}"))
}

/// Type that the schema expects, if `value` is of another one.
fn wrong_type(schema: &JSONSchemaProps, value: &Value) -> Option<&'static str> {
    // Such a schema has no `type`.
    if schema.x_kubernetes_int_or_string == Some(true) {
        let fits = value.is_string() || value.is_i64() || value.is_u64();
        return (!fits).then_some("an integer or text");
    }
    let (fits, expected) = match schema.type_.as_deref()? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "text (put it in quotes)"),
        "integer" if schema.format.as_deref() == Some("int32") => (
            value.as_i64().is_some_and(|v| i32::try_from(v).is_ok()),
            "a whole number of 32 bits",
        ),
        "integer" => (value.is_i64(), "a whole number"),
        "number" => (value.is_number(), "a number"),
        "boolean" => (value.is_boolean(), "true or false"),
        _ => return None,
    };
    (!fits).then_some(expected)
}

#[cfg(test)]
pub(crate) mod tests {
    use kube_cel::{CompiledSchema, Validator, compile_schema};
    use proptest::prelude::*;
    use serde::{Serialize, de::DeserializeOwned};
    use serde_json::json;

    use super::*;
    use crate::{EffectiveHorizontalPodAutoscaler, TimeSeriesPrediction};

    /// The rules of a kind, and the same rules in kube-cel, a complete implementation of CEL.
    pub(crate) struct ComparedRules {
        rules: Rules,
        reference: CompiledSchema,
    }

    impl ComparedRules {
        pub(crate) fn of<K: CustomResourceExt>() -> Self {
            let rules = Rules::of::<K>();
            let reference = compile_schema(&serde_json::to_value(&rules.schema).unwrap());
            assert!(!reference.has_errors());
            assert_twins(&rules.schema);
            Self { rules, reference }
        }

        /// The objects of this kind under `examples/`, each of which is valid and writes back as it was.
        pub(crate) fn examples<K: CustomResourceExt + Serialize + DeserializeOwned>() -> Vec<K> {
            let rules = Self::of::<K>();
            let kind = K::crd().spec.names.kind;
            let mut examples = Vec::new();
            for entry in
                std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples")).unwrap()
            {
                let path = entry.unwrap().path();
                if path.extension().is_none_or(|extension| extension != "yaml") {
                    continue;
                }
                let yaml = std::fs::read_to_string(&path).unwrap();
                for object in serde_saphyr::from_multiple::<Value>(&yaml).unwrap() {
                    if object["kind"] == kind.as_str() {
                        let typed: K = serde_json::from_value(object.clone()).unwrap();
                        assert_eq!(serde_json::to_value(&typed).unwrap(), object, "{path:?}");
                        assert_eq!(rules.check(&object), [], "{path:?}");
                        examples.push(typed);
                    }
                }
            }
            examples
        }

        /// Asserts that the object is answered once, at `pointer`, with `advice`.
        pub(crate) fn assert_refused(&self, object: &Value, pointer: &str, advice: &str) {
            let found = self.check(object);
            let [Violation { field: at, message }] = found.as_slice() else {
                panic!("{object}: {found:?}");
            };
            assert_eq!(*at, field(pointer), "{object}");
            assert!(message.contains(advice), "{object}: {message}");
        }

        /// Findings of [`Rules::check`], which must be those of kube-cel.
        pub(crate) fn check(&self, object: &Value) -> Vec<Violation> {
            let mut object = object.clone();
            drop_nulls(&mut object);
            let found = self.rules.check(&object);
            let mut misshapen = Vec::new();
            shape("", &self.rules.schema, &object, &mut misshapen);
            if misshapen.is_empty() {
                let answer = Validator::new().validate_compiled(&self.reference, &object, None);
                let errors = answer.err().map(kube_cel::ValidationErrors::into_vec);
                let expected = errors.into_iter().flatten().map(|error| Violation {
                    field: error.field_path,
                    message: error.message,
                });
                let mut expected: Vec<_> = expected.collect();
                names(&object, &mut expected);
                assert_eq!(sorted(found.clone()), sorted(expected), "{object}");
            }
            found
        }
    }

    /// Asserts that each rule of this schema has a message, and a twin for a value of its type.
    fn assert_twins(schema: &JSONSchemaProps) {
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            let mut values = [json!(1), json!("1h")].into_iter();
            let has_twin = values.any(|value| twins::holds(&rule.rule, &value).is_some());
            assert!(has_twin && rule.message.is_some(), "{}", rule.rule);
        }
        let properties = schema.properties.iter().flatten();
        for inner in properties
            .map(|(_, property)| property)
            .chain(items(schema))
        {
            assert_twins(inner);
        }
    }

    fn sorted(mut violations: Vec<Violation>) -> Vec<Violation> {
        violations.sort_by_cached_key(|v| (v.field.clone(), v.message.clone()));
        violations
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[ -~]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-zA-Z]{1,6}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Names of fields, so that random values reach the rules behind them.
    const FIELDS: [&str; 14] = [
        "scaleTargetRef",
        "minReplicas",
        "maxReplicas",
        "scaleStrategy",
        "mode",
        "specificReplicas",
        "metrics",
        "behavior",
        "crons",
        "crons/0/start",
        "prediction",
        "prediction/quantile",
        "prediction/predictionAlgorithm",
        "prediction/predictionAlgorithm/algorithmType",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_the_rules_accept_can_be_read_and_writes_back_as_it_was(
            field in prop::sample::select(&FIELDS[..]),
            value in any_json(),
        ) {
            // Nulls are dropped before anything looks, see `drop_nulls`.
            let mut object = with(&format!("spec/{field}"), &value.to_string());
            drop_nulls(&mut object);
            if RULES.with(|rules| rules.check(&object)).is_empty() {
                let read: EffectiveHorizontalPodAutoscaler = serde_json::from_value(object.clone())?;
                prop_assert_eq!(serde_json::to_value(read)?, object);
            }
        }
    }

    /// Text around what the rules on text accept.
    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            "([0-9]{1,3}(\\.[0-9]{1,2})?(d|h|m|s|ms)){1,3}",
            "[0-9]{1,9}(d|h|m|s|w| h)?",
            "((CRON_)?TZ=[A-Z]{0,2} )? ?([0-9*?/,-]{1,3} ){3,6}[0-7*]? ?",
            "@(every|yearly|daily|hourly|often)( 1h)?",
            prop::sample::select(&["", "auto", "dsp", "1d", "7d", "168h", "24h"][..])
                .prop_map(str::to_owned),
        ]
    }

    const TEXTS: [&str; 6] = [
        "spec/crons/0/start",
        "spec/crons/0/end",
        "spec/prediction/predictionAlgorithm/algorithmType",
        "spec/prediction/predictionAlgorithm/auto/sampleInterval",
        "spec/prediction/predictionAlgorithm/dsp/historyLength",
        "spec/prediction/predictionAlgorithm/seasonalNaive/period",
    ];

    proptest! {
        #[test]
        fn texts_are_refused_as_a_complete_implementation_refuses_them(
            field in prop::sample::select(&TEXTS[..]),
            text in any_text(),
        ) {
            // The comparison is inside `check`.
            RULES.with(|rules| rules.check(&with(field, &Value::from(text).to_string())));
        }
    }

    thread_local! {
        static RULES: ComparedRules = ComparedRules::of::<EffectiveHorizontalPodAutoscaler>();
    }

    /// A small object with one cron; the JSON of `value` is set at `pointer`.
    fn with(pointer: &str, value: &str) -> Value {
        let mut object = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 10,
                "crons": [{
                    "name": "day", "start": "0 9 * * *", "end": "0 18 * * *", "targetReplicas": 5,
                }],
            },
        });
        set(&mut object, pointer, value);
        object
    }

    /// Sets the JSON of `value` at `pointer`.
    pub(crate) fn set(object: &mut Value, pointer: &str, value: &str) {
        let mut place = object;
        for step in pointer.split('/') {
            place = match step.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[step],
            };
        }
        *place = serde_json::from_str(value).unwrap();
    }

    /// Path of the field at `pointer`, as the API server writes it.
    pub(crate) fn field(pointer: &str) -> String {
        pointer
            .split('/')
            .fold(String::new(), |path, step| match step.parse::<usize>() {
                Ok(index) => format!("{path}[{index}]"),
                Err(_) if path.is_empty() => step.to_owned(),
                Err(_) => format!("{path}.{step}"),
            })
    }

    /// The rows of a table, one a line, whose columns `|` separates.
    pub(crate) fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
        let lines = table.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| {
            let columns: Vec<_> = line.split('|').map(str::trim).collect();
            columns.try_into().expect("a row has all columns")
        })
    }

    /// A list of this many items, in which `#` stands for the number of the item.
    pub(crate) fn list(length: usize, item: &str) -> String {
        let items = (0..length).map(|number| item.replace('#', &number.to_string()));
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    }

    const ALGORITHM: &str = "spec/prediction/predictionAlgorithm";

    const ACCEPTED: &str = r#"
        spec/minReplicas | 10
        spec/minReplicas | 0
        spec/minReplicas | null
        spec/maxReplicas | 1
        spec/maxReplicas | 10000
        spec/specificReplicas | 0
        spec/mode | "Direct"
        spec/prediction | {}
        spec/prediction/predictionWindowSeconds | 60
        spec/prediction/predictionWindowSeconds | 604800
        spec/prediction/quantile | 0.5
        spec/prediction/quantile | 0.999
        spec/prediction/leadTimeSeconds | 30
        spec/prediction/leadTimeSeconds | 1200
        spec/prediction/maxUnderProvisionedPercent | 1
        spec/prediction/predictionAlgorithm | {}
        spec/prediction/predictionAlgorithm | {"dsp": {"historyLength": "1h", "sampleInterval": "15s"}}
        spec/prediction/predictionAlgorithm | {"dsp": {"historyLength": "30d", "sampleInterval": "1.5m"}}
        spec/prediction/predictionAlgorithm | {"algorithmType": "percentile", "percentile": {"historyLength": "72h30m"}}
        spec/prediction/predictionAlgorithm | {"seasonalNaive": {"period": "7d", "statistic": "max", "cycles": 4}}
        spec/prediction/predictionAlgorithm | {"auto": {"sampleInterval": "5m"}}
        spec/crons/0/start | "@daily"
        spec/crons/0/start | "TZ=Asia/Tokyo 0 9 * * *"
        spec/crons/0/start | "CRON_TZ=Asia/Tokyo @hourly"
        spec/crons/0/end | " 00 14 ? * mon-FRI "
        spec/crons/0/name | null
        spec/crons/0/targetReplicas | 0
        spec/crons/0/timezone | "America/Argentina/ComodRivadavia"
    "#;

    /// Pointer, JSON set there, words of the answer.
    const REFUSED: &str = r#"
        spec/minReplicas | 11 | lower minReplicas or raise maxReplicas
        spec/minReplicas | -1 | must be 0 or more
        spec/minReplicas | "1" | expected a whole number
        spec/maxReplicas | 0 | between 1 and 10000
        spec/maxReplicas | 10001 | between 1 and 10000
        spec/maxReplicas | 3000000000 | a whole number of 32 bits
        spec/maxReplicas | null | is required
        spec/maxReplica | 1 | no such field
        spec/scaleTargetRef | {"kind": "Deployment", "name": ""} | the kind and the name
        spec/specificReplicas | -1 | leave it out to let Preview only watch
        spec/scaleStrategy | "Manual" | one of "Auto", "Preview"
        spec/mode | "direct" | one of "Delegated", "Direct", "Metric"
        spec/crons/0 | {"end": "@daily", "targetReplicas": 1} | needs start and end
        spec/crons/0 | {"start": "@daily", "end": "", "targetReplicas": 1} | needs start and end
        spec/crons/0 | {"start": "@daily", "end": "@hourly"} | needs targetReplicas
        spec/crons/0/targetReplicas | -1 | between 0 and 10000
        spec/crons/0/start | "0 9 * *" | has five fields
        spec/crons/0/start | "0 0 9 * * *" | has five fields
        spec/crons/0/end | "@fortnightly" | has five fields
        spec/crons/0/end | "@every 1h" | no fixed times of day
        spec/prediction/predictionWindowSeconds | 59 | between 60 and 604800
        spec/prediction/predictionWindowSeconds | 604801 | between 60 and 604800
        spec/prediction/quantile | 0.4 | between 0.5 and 0.999
        spec/prediction/quantile | 1 | between 0.5 and 0.999
        spec/prediction/leadTimeSeconds | 29 | leave it out to have it measured
        spec/prediction/maxUnderProvisionedPercent | 0 | above 0 and below 100
        spec/prediction/maxUnderProvisionedPercent | 100 | above 0 and below 100
        spec/prediction | {"quantile": 0.9, "maxUnderProvisionedPercent": 1} | exclude each other
        spec/prediction/predictionAlgorithm/algorithmType | "DSP" | leave it out to use auto
        spec/crons | [{"start": "@daily", "end": "@hourly", "targetReplicas": 1}, {"start": "@daily", "end": "@hourly", "targetReplicas": 2}] | needs a name of its own
        spec/metrics | {} | expected a list
        spec/behavior/scaleUp/tolerance | 0.1 | an integer or text
    "#;

    /// Member of `predictionAlgorithm`, text or number set there, words of the answer.
    const REFUSED_PARAMETERS: &str = r#"
        dsp/historyLength | "1w" | such as '14d'
        dsp/historyLength | "1d12h" | such as '14d'
        dsp/historyLength | "59m" | between 1h and 30d
        percentile/historyLength | "31d" | between 1h and 30d
        dsp/sampleInterval | "60" | such as '60s'
        seasonalNaive/period | "1w" | 1d or 7d
        seasonalNaive/cycles | 31 | between 1 and 30
        auto/sampleInterval | "14s" | between 15s and 1h
        auto/sampleInterval | "2h" | between 15s and 1h
        auto/sampleInterval | "7m" | an exact part of a day
        dsp/sampleInterval | "1d" | between 15s and 1h
    "#;

    const REFUSED_METADATA: &str = r#"
        metadata | null | is required
        metadata/name | null | is required
        metadata/name | "Web_App" | not "Web_App"
        metadata/name | "web-" | at both ends
        metadata/name | "a..b" | at both ends
        metadata/name | "" | lowercase letters
        metadata/name | 7 | expected text (put it in quotes), found 7
        metadata/namespace | "shop.web" | not "shop.web"
        metadata/nam | "web" | no such field
        metadata/labels | [] | expected an object
        metadata/labels/app | 1 | expected text
        metadata/annotations/a | true | expected text
    "#;

    #[test]
    fn metadata_that_no_object_may_have_is_refused() {
        let rules = ComparedRules::of::<EffectiveHorizontalPodAutoscaler>();
        for [pointer, value, advice] in rows(REFUSED_METADATA) {
            let about = if pointer == "metadata" {
                "metadata/name"
            } else {
                pointer
            };
            rules.assert_refused(&with(pointer, value), about, advice);
        }
        for name in ["web", "7", "a.b-c.d", &"n".repeat(253)] {
            let value = Value::from(name).to_string();
            assert_eq!(rules.check(&with("metadata/name", &value)), [], "{name}");
        }
        let too_long = Value::from("n".repeat(254)).to_string();
        assert_eq!(rules.check(&with("metadata/name", &too_long)).len(), 1);
    }

    #[test]
    fn objects_at_the_edge_of_the_rules_are_accepted() {
        let rules = ComparedRules::of::<EffectiveHorizontalPodAutoscaler>();
        for [pointer, value] in rows(ACCEPTED) {
            assert_eq!(
                rules.check(&with(pointer, value)),
                [],
                "{pointer} = {value}"
            );
        }
    }

    #[test]
    fn each_broken_rule_is_answered_once_with_the_field_and_what_to_do() {
        let rules = ComparedRules::of::<EffectiveHorizontalPodAutoscaler>();
        for [pointer, value, advice] in rows(REFUSED) {
            rules.assert_refused(&with(pointer, value), pointer, advice);
        }
        for [parameter, value, advice] in rows(REFUSED_PARAMETERS) {
            let pointer = format!("{ALGORITHM}/{parameter}");
            rules.assert_refused(&with(&pointer, value), &pointer, advice);
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let rules = ComparedRules::of::<EffectiveHorizontalPodAutoscaler>();
        let metric = |n| list(n, r#"{"type": "Resource"}"#);
        let cron = r#"{"name": "c#", "start": "@daily", "end": "@hourly", "targetReplicas": 1}"#;
        let crons = |n| list(n, cron);
        let text = |n| format!("{:?}", "n".repeat(n));
        for (pointer, fits) in [
            ("spec/metrics", metric(16)),
            ("spec/crons", crons(32)),
            ("spec/crons/0/name", text(253)),
            ("spec/crons/0/timezone", text(64)),
        ] {
            assert_eq!(rules.check(&with(pointer, &fits)), [], "{pointer}");
        }
        for (pointer, too_big, advice) in [
            ("spec/metrics", metric(17), "most 16 items, has 17"),
            ("spec/crons", crons(33), "at most 32 items, has 33"),
            ("spec/crons/0/name", text(254), "characters, has 254"),
            ("spec/crons/0/timezone", text(65), "at most 64 characters"),
            ("spec/crons/0/start", text(129), "at most 128 characters"),
        ] {
            rules.assert_refused(&with(pointer, &too_big), pointer, advice);
        }
    }

    #[test]
    fn a_selector_holds_at_most_sixteen_labels() {
        let rules = ComparedRules::of::<EffectiveHorizontalPodAutoscaler>();
        let check = |n: usize| {
            let labels: Map<_, _> = (0..n).map(|i| (format!("l{i}"), json!("v"))).collect();
            let metrics = json!([{"type": "External", "external": {
                "metric": {"name": "queue", "selector": {"matchLabels": labels}},
                "target": {"type": "Value", "value": "5"},
            }}]);
            rules.check(&with("spec/metrics", &metrics.to_string()))
        };
        let field = "spec.metrics[0].external.metric.selector.matchLabels".to_owned();
        let message = "must have at most 16 entries, has 17".to_owned();
        assert_eq!(check(16), []);
        assert_eq!(check(17), [Violation { field, message }]);
    }

    #[test]
    fn a_prediction_as_crane_stores_it_is_accepted_and_writes_back_as_it_was() {
        let algorithm = json!({
            "algorithmType": "dsp",
            "dsp": {
                "sampleInterval": "60s", "historyLength": "14d",
                "estimators": {
                    "maxValue": [{"marginFraction": "0.1"}],
                    "fft": [{"marginFraction": "0.2", "lowAmplitudeThreshold": "1.0", "highFrequencyThreshold": "0.05",
                             "minNumOfSpectrumItems": 10, "maxNumOfSpectrumItems": 20}],
                },
            },
        });
        let labels = json!([{"key": "pod", "operator": "in", "value": ["a", "b"]}]);
        let object = json!({
            "apiVersion": "prediction.crane.io/v1alpha1",
            "kind": "TimeSeriesPrediction",
            "metadata": {"name": "tsp"},
            "spec": {
                "predictionMetrics": [
                    {"resourceIdentifier": "cpu", "type": "ExpressionQuery",
                     "expressionQuery": {"expression": "sum(rate(x[3m]))"}, "algorithm": algorithm},
                    {"resourceIdentifier": "mem", "type": "MetricQuery",
                     "metricQuery": {"metricName": "m", "labels": labels},
                     "algorithm": {"algorithmType": "percentile", "percentile": {
                         "aggregated": true, "sampleInterval": "1m", "histogram": {
                             "maxValue": "100", "epsilon": "1e-10", "halfLife": "24h", "bucketSize": "0.1",
                             "firstBucketSize": "0.01", "bucketSizeGrowthRatio": "1.05"},
                         "minSampleWeight": "1e-5", "marginFraction": "0.15", "percentile": "0.99",
                         "targetUtilization": "1.0"}}},
                    {"resourceIdentifier": "r", "type": "ResourceQuery", "resourceQuery": "cpu"},
                ],
                "targetRef": {"kind": "Deployment", "name": "web", "namespace": "shop"},
                "predictionWindowSeconds": 180,
            },
            "status": {
                "predictionMetrics": [
                    {"resourceIdentifier": "cpu", "ready": true, "prediction": [{
                        "labels": [{"name": "zone", "value": "a"}],
                        "samples": [{"value": "0.12345", "timestamp": 1_700_000_000, "upper": "0.2"}]}]},
                    {"resourceIdentifier": "mem", "ready": false, "reason": "TooShort", "message": "wait"},
                ],
                "conditions": [{"type": "Ready", "status": "False", "reason": "PredictPartial",
                    "message": "not all metric predicted", "lastTransitionTime": "2024-01-01T00:00:00Z"}],
            },
        });
        let typed: TimeSeriesPrediction = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(&typed).unwrap(), object);
        assert_eq!(
            ComparedRules::of::<TimeSeriesPrediction>().check(&object),
            []
        );
        assert_eq!(
            ComparedRules::of::<TimeSeriesPrediction>()
                .check(&json!({"metadata": {"generateName": "p-"}, "spec": {}})),
            []
        );
    }
}
