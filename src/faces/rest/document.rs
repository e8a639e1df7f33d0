//! `/openapi.json`: the OpenAPI description of this API. It is written by hand, and kept true by the tests below and by
//! `tests/it`, which checks every response that it gets.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::exchange::Exchange;
use super::params::Params;
use super::show::{RestAnswer, RouteAnswer};

/// OpenAPI 3.1 document, as committed.
const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

pub(super) async fn get(_: Arc<Exchange>, _: Params) -> RestAnswer {
    Ok(RouteAnswer::Json(StatusCode::OK, Bytes::from_static(DOCUMENT.as_bytes())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::DOCUMENT;
    use crate::domain::activity::{RecordKind, Source, Status};
    use crate::domain::consent::{ConsentDecision, ConsentState, MayNotDecide};
    use crate::domain::person::OnePerson;
    use crate::domain::policy::Assurance;
    use crate::domain::refusal::Code;
    use crate::domain::risk::RiskLevel;
    use crate::faces::rest::ROUTES;
    use crate::faces::rest::error::code_of;
    use crate::gateway::GatewayError;

    const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    /// Returns every operation of the document: method, path, description.
    fn operations(document: &Value) -> Vec<(String, String, &Value)> {
        let mut found = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in METHODS {
                if let Some(operation) = item.get(method) {
                    found.push((method.to_uppercase(), path.clone(), operation));
                }
            }
        }
        found
    }

    #[test]
    fn every_route_is_documented_and_nothing_else() {
        let document = document();
        let documented: BTreeSet<(String, String)> =
            operations(&document).into_iter().map(|(method, path, _)| (method, path)).collect();
        let served: BTreeSet<(String, String)> =
            ROUTES.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
        if let Some((method, path)) = served.difference(&documented).next() {
            panic!(
                "docs/openapi.json: add \"{}\" under paths.\"{path}\": operationId, summary, tags, x-roles, parameters or \
                 requestBody where it takes any, responses. GET /servers/{{name}} is an example of a route that reads, \
                 PATCH /servers/{{name}} of one that acts.",
                method.to_lowercase()
            );
        }
        if let Some((method, path)) = documented.difference(&served).next() {
            panic!("docs/openapi.json: take out {method} {path}: faces/rest/mod.rs has no such route");
        }
    }

    #[test]
    fn operations_are_named_once() {
        let document = document();
        let operations = operations(&document);
        let names: BTreeSet<&str> =
            operations.iter().map(|(.., operation)| operation["operationId"].as_str().unwrap()).collect();
        assert_eq!(names.len(), operations.len());
    }

    #[test]
    fn closed_lists_are_the_codes() {
        let document = document();
        let lists: [(&str, &[&str]); 7] = [
            ("ConsentState", &ConsentState::WORDS),
            ("ConsentDecision", &ConsentDecision::WORDS),
            ("RiskLevel", &RiskLevel::WORDS),
            ("ActivityType", &RecordKind::WORDS),
            ("ActivitySource", &Source::WORDS),
            ("ActivityStatus", &Status::WORDS),
            ("CallErrorCode", &Code::WORDS),
        ];
        for (name, known) in lists {
            let said = document["components"]["schemas"][name]["enum"].as_array().unwrap();
            let said: Vec<&str> = said.iter().filter_map(Value::as_str).collect();
            assert_eq!(said, known, "docs/openapi.json: components.schemas.{name}.enum");
        }
        let unit = || String::new();
        let failures = [
            GatewayError::Forbidden(unit()),
            GatewayError::MayNotDecide(MayNotDecide::NotApprover),
            GatewayError::MayNotDecide(MayNotDecide::SelfApproval {
                same: OnePerson::SameKey,
                needed: Assurance::Client,
            }),
            GatewayError::NotFound(""),
            GatewayError::Invalid { field: None, message: unit() },
            GatewayError::Conflict(unit()),
            GatewayError::Limit(unit()),
            GatewayError::Unavailable,
        ];
        let mut known: BTreeSet<&str> = failures.iter().map(code_of).collect();
        // a caller without a valid key, and an act that cannot be recorded
        known.extend(["unauthenticated", Code::RecordUnavailable.as_str()]);
        let said = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap();
        assert_eq!(said.iter().filter_map(Value::as_str).collect::<BTreeSet<_>>(), known);
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn every_part_is_there_and_used() {
        let document = document();
        let mut used = BTreeSet::new();
        collect(&document, &mut used);
        let mut there = BTreeSet::new();
        for kind in ["parameters", "responses", "schemas"] {
            for name in document["components"][kind].as_object().unwrap().keys() {
                there.insert(format!("#/components/{kind}/{name}"));
            }
        }
        assert_eq!(used, there);
    }

    fn collect(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(place) = members.get("$ref").and_then(Value::as_str) {
                    into.insert(place.to_owned());
                }
                members.values().for_each(|member| collect(member, into));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
            _ => {}
        }
    }
}
