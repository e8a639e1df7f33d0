//! Drafts of JSON Schema, and the keywords of each that hold schemas.

/// Draft of JSON Schema, older ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    D4,
    D6,
    D7,
    D2019,
    D2020,
}

/// Form in which a keyword holds schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Single schema, or a list of schemas.
    Schemas,
    /// A map of names to schemas, or to lists of names.
    Map,
}

impl Draft {
    /// Returns the draft that a `$schema` names; `None` for an unknown one.
    pub(super) fn named(uri: &str) -> Option<Draft> {
        let uri = uri.strip_suffix('#').unwrap_or(uri);
        let uri = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://"))?;
        match uri.strip_prefix("json-schema.org/")? {
            "draft-04/schema" => Some(Draft::D4),
            "draft-06/schema" => Some(Draft::D6),
            "draft-07/schema" => Some(Draft::D7),
            "draft/2019-09/schema" => Some(Draft::D2019),
            "draft/2020-12/schema" => Some(Draft::D2020),
            _ => None,
        }
    }

    /// Returns the keyword for a schema's own name.
    pub(super) fn id_keyword(self) -> &'static str {
        if self == Draft::D4 { "id" } else { "$id" }
    }

    /// Returns whether keywords beside `$ref` are ignored: up to draft 7.
    pub(super) fn ref_stands_alone(self) -> bool {
        self <= Draft::D7
    }

    /// Returns the form in which a keyword of this draft holds schemas; `None` if it holds none.
    pub(super) fn holds(self, keyword: &str) -> Option<Holds> {
        use Draft::{D4, D6, D7, D2019, D2020};
        let (holds, since, until) = match keyword {
            "allOf" | "anyOf" | "oneOf" | "not" | "items" | "additionalProperties" => {
                (Holds::Schemas, D4, D2020)
            }
            "additionalItems" => (Holds::Schemas, D4, D2019),
            "contains" | "propertyNames" => (Holds::Schemas, D6, D2020),
            "if" | "then" | "else" => (Holds::Schemas, D7, D2020),
            "unevaluatedItems" | "unevaluatedProperties" => (Holds::Schemas, D2019, D2020),
            "prefixItems" => (Holds::Schemas, D2020, D2020),
            "properties" | "patternProperties" | "definitions" => (Holds::Map, D4, D2020),
            "dependencies" => (Holds::Map, D4, D7),
            "$defs" | "dependentSchemas" => (Holds::Map, D2019, D2020),
            _ => return None,
        };
        (since <= self && self <= until).then_some(holds)
    }
}
