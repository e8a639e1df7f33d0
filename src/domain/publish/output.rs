//! Check for output schemas that every client can compile.
//!
//! One official client compiles the output schemas of a list with Ajv, and has no tools at all when one does not compile.
//! For such clients, a schema that may not compile is left out: `outputSchema` is optional. Keywords as in draft 7 and
//! 2020-12.

use std::collections::HashSet;

use super::members::{all_elements, is_object, is_string, text};
use super::pattern;
use crate::domain::json;

/// Most subschemas of one output schema.
const SUBSCHEMAS_MAX: usize = 2000;
/// Most alternatives (`anyOf`, `oneOf`) in one output schema, all together: compiled, they are nested.
const ALTERNATIVES_MAX: usize = 500;
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Returns whether a schema, an object, surely compiles. Takes time in proportion to its size times its depth.
pub(super) fn is_safe(schema: &str) -> bool {
    let Ok([new, old, own]) = json::find_members(schema, ["$defs", "definitions", "$ref"]) else {
        return false;
    };
    let mut check = Check { targets: HashSet::new(), subschemas: 0, alternatives: 0 };
    for (place, defs) in [("$defs", new), ("definitions", old)] {
        json::for_each_member(defs.unwrap_or("{}"), |member| {
            // a reference to a reference may be circular
            if !matches!(json::find_members(member.value, ["$ref"]), Ok([Some(_)])) {
                check.targets.insert(format!("#/{place}/{}", member.name));
            }
        });
    }
    own.is_none() && check.schema(schema)
}

struct Check {
    /// Targets that `$ref` may name, besides `#`.
    targets: HashSet<String>,
    subschemas: usize,
    alternatives: usize,
}

impl Check {
    fn schema(&mut self, raw: &str) -> bool {
        self.subschemas += 1;
        if self.subschemas > SUBSCHEMAS_MAX {
            return false;
        }
        if matches!(raw, "true" | "false") {
            return true;
        }
        let mut is_safe = is_object(raw);
        json::for_each_member(raw, |member| is_safe = is_safe && self.keyword(&member.name, member.value));
        is_safe
    }

    fn keyword(&mut self, name: &str, raw: &str) -> bool {
        match name {
            "type" => is_type(raw) || (!is_empty(raw) && all_elements(raw, is_type)),
            "properties" | "$defs" | "definitions" | "dependentSchemas" => self.named(raw, |_| true),
            "patternProperties" => self.named(raw, pattern::is_plain),
            "items" if raw.starts_with('[') => self.schemas(raw),
            "items"
            | "additionalItems"
            | "additionalProperties"
            | "contains"
            | "else"
            | "if"
            | "not"
            | "propertyNames"
            | "then"
            | "unevaluatedItems"
            | "unevaluatedProperties" => self.schema(raw),
            "allOf" | "prefixItems" => self.schemas(raw),
            "anyOf" | "oneOf" => {
                self.alternatives += json::elements(raw).map_or(0, Iterator::count);
                self.alternatives <= ALTERNATIVES_MAX && self.schemas(raw)
            }
            "required" => all_elements(raw, is_string),
            "enum" => raw.starts_with('[') && !is_empty(raw),
            "const" | "default" => true,
            "pattern" => text(raw).is_some_and(|pattern| pattern::is_plain(&pattern)),
            "format" | "contentEncoding" | "contentMediaType" | "$comment" | "$schema" => is_string(raw),
            "exclusiveMaximum" | "exclusiveMinimum" | "maxItems" | "maxLength" | "maxProperties"
            | "maximum" | "minItems" | "minLength" | "minProperties" | "minimum" | "multipleOf" => {
                raw.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            }
            "uniqueItems" => matches!(raw, "true" | "false"),
            "$ref" => text(raw).is_some_and(|target| target == "#" || self.is_target(&target)),
            "dependencies" | "discriminator" | "id" | "nullable" => false,
            // not a keyword, but some clients read anything in it that looks like an `$id` as one
            other => !other.starts_with('$') && (is_scalar(raw) || !raw.contains(['$', '\\'])),
        }
    }

    /// Returns whether `$ref` may name the target. Its name must need no escape in a pointer or a URI.
    fn is_target(&self, target: &str) -> bool {
        let name = target.rsplit('/').next().unwrap_or_default();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        is_plain && self.targets.contains(target)
    }

    fn named(&mut self, raw: &str, is_name: impl Fn(&str) -> bool) -> bool {
        let mut is_safe = is_object(raw);
        json::for_each_member(raw, |member| {
            is_safe = is_safe && is_name(&member.name) && self.schema(member.value);
        });
        is_safe
    }

    fn schemas(&mut self, raw: &str) -> bool {
        json::elements(raw).is_some_and(|mut elements| elements.all(|schema| self.schema(schema)))
            && !is_empty(raw)
    }
}

fn is_type(raw: &str) -> bool {
    text(raw).is_some_and(|kind| TYPES.contains(&kind.as_str()))
}

fn is_scalar(raw: &str) -> bool {
    !raw.starts_with(['{', '['])
}

/// Returns whether the value is an empty array.
fn is_empty(raw: &str) -> bool {
    json::elements(raw).is_some_and(|mut elements| elements.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_surely_compiles_is_kept() {
        for members in [
            r#""properties":{"id":{"type":["string","null"],"format":"uuid"},"nullable":{"enum":[1,"a"]},"b":true}"#,
            r##""properties":{"a":{"$ref":"#/$defs/A.b-c_1"},"b":{"$ref":"#"}},"$defs":{"A.b-c_1":{"items":{"$ref":"#/$defs/A.b-c_1"}}}"##,
            r##""additionalProperties":{"$ref":"#/definitions/T"},"definitions":{"T":{"anyOf":[{"type":"null"},{"const":{"$id":7}}]}}"##,
            r#""patternProperties":{"^x-[a-z]+$":{"pattern":"^\\d{4}-\\d\\d$"}},"required":["a","a"],"$schema":"http://x.example/none""#,
            r#""x-order":["a","b"],"title":7,"x-cost":{"usd":1.5},"minProperties":1,"description":"$id \u0024""#,
            r#""items":[{"minimum":-1.5}],"allOf":[{"if":{},"then":{"uniqueItems":true}}],"prefixItems":[{}]"#,
        ] {
            assert!(is_safe(&format!(r#"{{"type":"object",{members}}}"#)), "{members}");
        }
    }

    #[test]
    fn what_may_not_compile_is_not() {
        for members in [
            r#""properties":{"a":{"$ref":"https://x.example/y"}}"#,
            r##""properties":{"a":{"$ref":"#/$defs/Missing"}}"##,
            r##""properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"$ref":"#/$defs/A"}}"##,
            r##""$ref":"#""##,
            r##""properties":{"a":{"$ref":"#/$defs/A%20B"}},"$defs":{"A%20B":{}}"##,
            r#""properties":{"a":{"$ref":7}}"#,
            r#""properties":{"a":{"type":"nope"}}"#,
            r#""properties":{"a":{"type":[]}}"#,
            r#""properties":{"a":{"pattern":"("}}"#,
            r#""properties":{"a":{"pattern":"^[\\w-.]+$"}}"#,
            r#""patternProperties":{"(":{}}"#,
            r#""properties":{"a":{"enum":[]}}"#,
            r#""properties":{"a":{"minimum":"x"}}"#,
            r#""properties":{"a":{"format":7}}"#,
            r#""properties":{"a":{"nullable":true}}"#,
            r#""properties":{"a":{"id":"x"}}"#,
            r#""properties":{"a":{"uniqueItems":1}}"#,
            r#""properties":{"a":7}"#,
            r#""additionalProperties":null"#,
            r#""anyOf":[]"#,
            r#""allOf":{}"#,
            r#""$id":"https://x.example/y""#,
            r#""$anchor":"a b""#,
            r#""x-v":{"$id":"https://x.example/y"}"#,
            r#""x-v":[{"\u0024id":"https://x.example/y"}]"#,
            r#""dependencies":{"a":7}"#,
        ] {
            assert!(!is_safe(&format!(r#"{{"type":"object",{members}}}"#)), "{members}");
        }
        let many = |count: usize| format!(r#"{{"anyOf":[{}]}}"#, vec!["{}"; count].join(","));
        assert!(is_safe(&many(ALTERNATIVES_MAX)) && !is_safe(&many(ALTERNATIVES_MAX + 1)));
        let all = |count: usize| many(count).replace("anyOf", "allOf");
        assert!(is_safe(&all(SUBSCHEMAS_MAX - 1)) && !is_safe(&all(SUBSCHEMAS_MAX)));
    }
}
