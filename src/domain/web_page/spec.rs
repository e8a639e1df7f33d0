//! Types and constraints of a parameter, in the few words of JSON Schema that forms have a use for.

use serde_json::{Map, Number, Value};

use crate::domain::text_enum::text_enum;

text_enum! {
    /// Type of a parameter.
    pub enum ParameterType {
        /// Text.
        String = "string",
        /// Number.
        Number = "number",
        /// Number without a fraction.
        Integer = "integer",
        /// True or false.
        Boolean = "boolean",
        /// List of texts.
        Array = "array",
    }
}

/// Description of a parameter; what is absent or `None` is not said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParameterSpec {
    /// Type.
    pub kind: Option<ParameterType>,
    /// Text about the parameter, as its author wrote it.
    pub description: Option<String>,
    /// Permitted values, or those of the items of a list.
    pub options: Option<Vec<String>>,
    /// `format`.
    pub format: Option<String>,
    /// `pattern`, of ECMA-262.
    pub pattern: Option<String>,
    /// `minimum`.
    pub minimum: Option<Number>,
    /// `maximum`.
    pub maximum: Option<Number>,
    /// `minLength`, in characters.
    pub min_length: Option<u64>,
    /// `maxLength`, in characters.
    pub max_length: Option<u64>,
    /// `default`.
    pub default: Option<Value>,
}

impl ParameterSpec {
    /// Returns a spec of a type without constraints.
    pub fn of(kind: ParameterType) -> ParameterSpec {
        ParameterSpec { kind: Some(kind), ..ParameterSpec::default() }
    }

    /// Reads the schema of one parameter. Members that are not kept, or of another type, say nothing.
    pub fn read(schema: &Map<String, Value>) -> ParameterSpec {
        let text = |name: &str| schema.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| schema.get(name).and_then(Value::as_number).cloned();
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let kind = match schema.get("type") {
            // `["string", "null"]` is an optional string
            Some(Value::Array(kinds)) => kinds.iter().find_map(|kind| ParameterType::parse(kind.as_str()?)),
            Some(kind) => kind.as_str().and_then(ParameterType::parse),
            None => None,
        };
        let of_items = schema.get("items").and_then(|items| options(items.get("enum")?));
        ParameterSpec {
            kind,
            description: text("description"),
            options: schema.get("enum").and_then(options).or(of_items),
            format: text("format"),
            pattern: text("pattern"),
            minimum: number("minimum"),
            maximum: number("maximum"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            default: schema.get("default").filter(|value| !value.is_object() && !value.is_array()).cloned(),
        }
    }

    /// Returns the schema of the parameter.
    pub fn schema(&self) -> Map<String, Value> {
        let mut schema = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                schema.insert(name.to_owned(), value);
            }
        };
        let options = self.options.clone().map(Value::from);
        if self.kind == Some(ParameterType::Array) {
            let mut items =
                Map::from_iter([("type".to_owned(), Value::from(ParameterType::String.as_str()))]);
            items.extend(options.map(|options| ("enum".to_owned(), options)));
            put("items", Some(Value::Object(items)));
        } else {
            put("enum", options);
        }
        put("type", self.kind.map(|kind| Value::from(kind.as_str())));
        put("description", self.description.clone().map(Value::from));
        put("format", self.format.clone().map(Value::from));
        put("pattern", self.pattern.clone().map(Value::from));
        put("minimum", self.minimum.clone().map(Value::Number));
        put("maximum", self.maximum.clone().map(Value::Number));
        put("minLength", self.min_length.map(Value::from));
        put("maxLength", self.max_length.map(Value::from));
        put("default", self.default.clone());
        schema
    }
}

/// Returns the values of an enumeration as controls have them, as texts; `None` if one of them is no scalar.
fn options(values: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        _ => None,
    };
    values.as_array()?.iter().map(text).collect()
}
