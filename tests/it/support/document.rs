//! The OpenAPI document, and whether answers are what it says.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::Answer;

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
const PLACE: &str = "docs/openapi.json";

/// The committed document.
pub struct Document {
    root: Value,
    /// Its components, in which objects have no members but the named ones: answers may grow in later releases, but not
    /// without a word here.
    closed: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    pub method: &'a str,
    /// Below `/api/v1`, with the names of its parts in braces.
    pub path: &'a str,
    pub said: &'a Value,
}

impl Document {
    pub fn get() -> &'static Document {
        static DOCUMENT: LazyLock<Document> = LazyLock::new(Document::read);
        &DOCUMENT
    }

    fn read() -> Document {
        let text = include_str!("../../../docs/openapi.json");
        let root: Value = serde_json::from_str(text).unwrap();
        let mut closed = root["components"].clone();
        close(&mut closed);
        Document { root, closed, validators: Mutex::default() }
    }

    /// The document as it is.
    pub fn value(&self) -> &Value {
        &self.root
    }

    /// Every operation in it.
    pub fn operations(&self) -> Vec<Operation<'_>> {
        let mut found = Vec::new();
        for (path, item) in self.root["paths"].as_object().unwrap() {
            let there = METHODS.into_iter().filter_map(|method| Some((method, item.get(method)?)));
            found.extend(there.map(|(method, said)| Operation { method, path, said }));
        }
        found
    }

    /// What stands here, or where its `$ref` leads.
    pub fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str().and_then(|place| place.strip_prefix('#')) {
            Some(place) => self.root.pointer(place).unwrap_or_else(|| panic!("{PLACE}: no {place}")),
            None => value,
        }
    }

    /// The path in the document that this one is an instance of.
    fn path_of(&self, path: &str) -> Option<&str> {
        let fits = |known: &&String| {
            known.split('/').count() == path.split('/').count()
                && known
                    .split('/')
                    .zip(path.split('/'))
                    .all(|(known, part)| known == part || known.starts_with('{'))
        };
        let paths = self.root["paths"].as_object().unwrap();
        // a path without parts goes before one with parts, as in the router
        paths.keys().filter(fits).min_by_key(|known| known.matches('{').count()).map(String::as_str)
    }

    /// Fails when an answer is not what is said of it.
    pub fn check(&self, method: &str, path: &str, answer: &Answer) {
        let known = self.path_of(path);
        let operation = known.map(|known| &self.root["paths"][known][method.to_lowercase()]);
        let operation = operation.filter(|operation| operation.is_object());
        let (Some(known), Some(operation)) = (known, operation) else {
            assert!((400..500).contains(&answer.status), "{method} {path} is not in {PLACE}: {answer:?}");
            return self.check_body(&json!({"$ref": "#/components/schemas/Error"}), "an error", answer);
        };
        let what = format!("{PLACE}: {} of {known}: {}", method.to_lowercase(), answer.status);
        let response = self.resolve(&operation["responses"][answer.status.to_string()]);
        assert!(response.is_object(), "{what} is not among its responses: {answer:?}");
        let essence = answer.header("content-type").split(';').next().unwrap_or_default().trim();
        let Some(content) = response["content"].as_object() else {
            assert_eq!((essence, &*answer.text), ("", ""), "{what} has no content there");
            return;
        };
        let content =
            content.get(essence).unwrap_or_else(|| panic!("{what} has no {essence} there: {answer:?}"));
        match essence {
            "application/json" => self.check_body(&content["schema"], &what, answer),
            "application/x-ndjson" => {
                for line in answer.text.lines() {
                    let record = Answer { text: line.to_owned(), ..answer.clone() };
                    self.check_body(&json!({"$ref": "#/components/schemas/ActivityRecord"}), &what, &record);
                }
            }
            _ => {}
        }
    }

    fn check_body(&self, schema: &Value, what: &str, answer: &Answer) {
        let Ok(body) = serde_json::from_str::<Value>(&answer.text) else {
            // numbers that no double holds are JSON all the same
            assert!(
                serde_json::from_str::<&RawValue>(&answer.text).is_ok(),
                "{what} is not JSON: {answer:?}"
            );
            return;
        };
        let validator = self.validator(schema);
        let wrong: Vec<String> = validator
            .iter_errors(&body)
            .map(|error| {
                format!(
                    "{}: {}",
                    error.instance_path,
                    error.to_string().chars().take(300).collect::<String>()
                )
            })
            .collect();
        assert!(
            wrong.is_empty(),
            "{what} is not what its schema there says:\n{}\n{answer:?}",
            wrong.join("\n")
        );
    }

    /// Copies the components that a part leads to, with those that they lead to: all of them would take longer than most
    /// answers.
    fn copy_components(&self, part: &Value, copied: &mut Value) {
        let place = part["$ref"].as_str().and_then(|place| place.strip_prefix("#/components/"));
        if let Some((kind, name)) = place.and_then(|place| place.split_once('/'))
            && copied[kind].get(name).is_none()
        {
            copied[kind][name] = self.closed[kind][name].clone();
            self.copy_components(&self.closed[kind][name], copied);
        }
        match part {
            Value::Object(members) => members.values().for_each(|part| self.copy_components(part, copied)),
            Value::Array(parts) => parts.iter().for_each(|part| self.copy_components(part, copied)),
            _ => {}
        }
    }

    fn validator(&self, schema: &Value) -> Arc<Validator> {
        let key = schema.to_string();
        if let Some(known) = self.validators.lock().unwrap().get(&key) {
            return Arc::clone(known);
        }
        let mut whole = schema.clone();
        close(&mut whole);
        let mut components = json!({});
        self.copy_components(&whole, &mut components);
        whole["components"] = components;
        let made = jsonschema::draft202012::options().should_validate_formats(true).build(&whole);
        let made = Arc::new(made.unwrap_or_else(|error| panic!("{PLACE}: {error}: {schema}")));
        self.validators.lock().unwrap().insert(key, Arc::clone(&made));
        made
    }
}

/// Every object that names its members has no others, unless it says so.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("properties").is_some_and(Value::is_object)
                && !members.contains_key("additionalProperties")
            {
                members.insert("additionalProperties".to_owned(), false.into());
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}
