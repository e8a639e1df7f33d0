//! How much work a schema can make: an upper bound, found before it is compiled.
//!
//! A few hundred bytes of `anyOf` and `$ref` can ask for 2^60 checks of one value. Such a schema is not used.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

/// Most schema nodes that may apply, with every local reference followed.
const NODES_MAX: u64 = 20_000;
/// Deepest chain of nodes and references.
const DEPTH_MAX: usize = 200;

/// Keywords whose value is a schema, or a list of them, for the same value.
const SAME: [&str; 7] = ["allOf", "anyOf", "else", "if", "not", "oneOf", "then"];
/// Keywords whose value is a schema, or a list of them, for the items of an array.
const ITEMS: [&str; 5] = ["additionalItems", "contains", "items", "prefixItems", "unevaluatedItems"];
/// Keywords whose value is a schema for the members of an object.
const MEMBERS: [&str; 3] = ["additionalProperties", "propertyNames", "unevaluatedProperties"];

/// What applying a schema once to one value costs.
#[derive(Clone, Default)]
struct Cost {
    nodes: u64,
    /// Ways back to each schema that is being applied.
    again: BTreeMap<String, Again>,
}

/// Ways back by what they are applied to. A value is an array or an object, never both: those through items
/// and those through members do not meet.
#[derive(Clone, Copy, Default)]
struct Again {
    same: u64,
    items: u64,
    members: u64,
}

impl Again {
    /// The most ways back that one value can take.
    fn most(self) -> u64 {
        self.same.saturating_add(self.items.max(self.members))
    }

    fn plus(self, other: Again) -> Again {
        Again {
            same: self.same.saturating_add(other.same),
            items: self.items.saturating_add(other.items),
            members: self.members.saturating_add(other.members),
        }
    }
}

impl Cost {
    fn nodes(nodes: u64) -> Cost {
        Cost { nodes, again: BTreeMap::new() }
    }

    fn plus(mut self, other: Cost) -> Cost {
        self.nodes = self.nodes.saturating_add(other.nodes);
        for (target, again) in other.again {
            let sum = self.again.entry(target).or_default();
            *sum = sum.plus(again);
        }
        self
    }

    /// Like `plus`, for values of which only one is applied to on any way back.
    fn beside(mut self, other: Cost) -> Cost {
        self.nodes = self.nodes.saturating_add(other.nodes);
        for (target, again) in other.again {
            let most = self.again.entry(target).or_default();
            if again.most() > most.most() {
                *most = again;
            }
        }
        self
    }

    fn through(mut self, step: fn(u64) -> Again) -> Cost {
        self.again.values_mut().for_each(|again| *again = step(again.most()));
        self
    }

    fn in_items(self) -> Cost {
        self.through(|items| Again { items, ..Again::default() })
    }

    fn in_members(self) -> Cost {
        self.through(|members| Again { members, ..Again::default() })
    }
}

/// Whether a schema's work is bounded; the error is a sentence for the activity record.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut walk = Walk { root: schema, open: vec![String::new()], known: HashMap::new() };
    let mut cost = walk.cost(schema, 0)?;
    close(&mut cost, "")?;
    if cost.nodes > NODES_MAX {
        return Err(format!("it applies more than {NODES_MAX} schemas to one value"));
    }
    Ok(())
}

struct Walk<'a> {
    root: &'a Value,
    /// Targets of the references being followed; the first is the whole schema.
    open: Vec<String>,
    known: HashMap<String, Cost>,
}

impl<'a> Walk<'a> {
    fn cost(&mut self, schema: &'a Value, depth: usize) -> Result<Cost, String> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
        }
        let mut cost = Cost::nodes(1);
        match schema {
            Value::Array(list) => {
                for item in list {
                    cost = cost.plus(self.cost(item, depth + 1)?);
                }
            }
            Value::Object(object) => {
                for (keyword, value) in object {
                    cost = cost.plus(self.keyword(keyword, value, depth)?);
                }
                if object.contains_key("unevaluatedProperties") || object.contains_key("unevaluatedItems") {
                    // these look at everything beside them a second time
                    cost = cost.clone().plus(cost);
                }
            }
            _ => {}
        }
        Ok(cost)
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value, depth: usize) -> Result<Cost, String> {
        match keyword {
            "$ref" => self.reference(value, depth),
            "$dynamicRef" | "$recursiveRef" => Err(format!("{keyword} is not followed")),
            "properties" | "patternProperties" => self.named(keyword, value, depth).map(Cost::in_members),
            "dependentSchemas" => self.named(keyword, value, depth),
            _ if SAME.contains(&keyword) => self.cost(value, depth + 1),
            _ if ITEMS.contains(&keyword) => self.cost(value, depth + 1).map(Cost::in_items),
            _ if MEMBERS.contains(&keyword) => self.cost(value, depth + 1).map(Cost::in_members),
            _ => Ok(Cost::default()),
        }
    }

    /// Properties of different names are different values: only the most ways back through one of them count.
    fn named(&mut self, keyword: &str, value: &'a Value, depth: usize) -> Result<Cost, String> {
        let mut sum = Cost::default();
        let Value::Object(object) = value else { return Ok(sum) };
        for schema in object.values() {
            let cost = self.cost(schema, depth + 1)?;
            sum = if keyword == "properties" { sum.beside(cost) } else { sum.plus(cost) };
        }
        Ok(sum)
    }

    fn reference(&mut self, target: &'a Value, depth: usize) -> Result<Cost, String> {
        let Some(pointer) = target.as_str().and_then(|text| text.strip_prefix('#')) else {
            return Err("references to other documents are not followed".to_owned());
        };
        if self.open.iter().any(|open| open == pointer) {
            let again = BTreeMap::from([(pointer.to_owned(), Again { same: 1, ..Again::default() })]);
            return Ok(Cost { nodes: 1, again });
        }
        if let Some(cost) = self.known.get(pointer) {
            return Ok(cost.clone());
        }
        let Some(schema) = self.root.pointer(pointer) else {
            return Err("a reference leads nowhere".to_owned());
        };
        self.open.push(pointer.to_owned());
        let mut cost = self.cost(schema, depth + 1)?;
        self.open.pop();
        close(&mut cost, pointer)?;
        self.known.insert(pointer.to_owned(), cost.clone());
        Ok(cost)
    }
}

/// A schema that comes back to itself on the very same value never ends; one that comes back twice to the
/// same part doubles at every level.
fn close(cost: &mut Cost, target: &str) -> Result<(), String> {
    let again = cost.again.remove(target).unwrap_or_default();
    if again.same > 0 || again.most() > 1 {
        return Err("it applies itself more than once to the same value".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_doubles_at_every_step_is_refused() {
        let mut defs = serde_json::Map::new();
        for n in 0..60 {
            let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
            defs.insert(format!("a{n}"), json!({"anyOf": [next, next]}));
        }
        defs.insert("a60".into(), json!(false));
        assert!(check(&json!({"$ref": "#/$defs/a0", "$defs": defs})).is_err());
        let both = json!({"properties": {"x": {"$ref": "#/$defs/a"}}});
        let doubling = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [both, both]}}});
        assert!(check(&doubling).is_err());
        let root =
            json!({"anyOf": [{"properties": {"x": {"$ref": "#"}}}, {"properties": {"x": {"$ref": "#"}}}]});
        assert!(check(&root).is_err());
        for circle in
            [json!({"$ref": "#"}), json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})]
        {
            assert!(check(&circle).is_err(), "{circle}");
        }
        let fibonacci = json!({"$ref": "#/$defs/a", "$defs": {"a": {
            "items": {"$ref": "#/$defs/a"},
            "prefixItems": [{"items": {"$ref": "#/$defs/a"}}]
        }}});
        assert!(check(&fibonacci).is_err());
    }

    #[test]
    fn ordinary_schemas_pass() {
        let tree = json!({
            "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "object", "properties": {
                "value": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}
            }}}
        });
        assert_eq!(check(&tree), Ok(()));
        let pair = json!({
            "$defs": {"t": {"properties": {"left": {"$ref": "#/$defs/t"}, "right": {"$ref": "#/$defs/t"}}}},
            "$ref": "#/$defs/t"
        });
        assert_eq!(check(&pair), Ok(()));
        let json_value = json!({
            "$defs": {"v": {"anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"$ref": "#/$defs/v"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/v"}}
            ]}},
            "properties": {"a": {"$ref": "#/$defs/v"}, "b": {"$ref": "#/$defs/v"}}
        });
        assert_eq!(check(&json_value), Ok(()));
        let either = json!({
            "$defs": {"t": {"items": {"$ref": "#/$defs/t"}}, "u": {"items": {"$ref": "#/$defs/u"}}},
            "anyOf": [{"$ref": "#/$defs/t"}, {"$ref": "#/$defs/u"}, {"$ref": "#/$defs/t"}]
        });
        assert_eq!(check(&either), Ok(()));
        assert_eq!(check(&json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}})), Ok(()));
        assert_eq!(check(&json!(true)), Ok(()));
    }
}
