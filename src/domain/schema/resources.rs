//! Names inside a schema (`$id`, `$anchor`), and the resolution of references to them.

use std::collections::HashMap;

use super::arena::{Arena, Id, NodeKind};
use super::dialect::{Draft, Holds};
use super::meter::StepMeter;
use super::uri;

/// Most parts of one schema with an `$id` of their own.
const RESOURCES_MAX: usize = 64;

/// Schema, or part of one, that has a URI.
#[derive(Debug)]
struct Resource {
    root: Id,
    start: u32,
    end: u32,
    uri: String,
}

/// Names of one schema.
#[derive(Debug)]
pub(super) struct Resources {
    list: Vec<Resource>,
    anchors: HashMap<(usize, String), Id>,
}

type Scanned<T> = Result<T, String>;

impl Resources {
    /// Finds the names in a schema.
    pub(super) fn scan(
        arena: &mut Arena<'_>,
        meter: &mut StepMeter,
        root: Id,
        draft: Draft,
    ) -> Scanned<Resources> {
        let whole = Resource { root, start: arena.offset(root), end: arena.end(root), uri: String::new() };
        let mut resources = Resources { list: vec![whole], anchors: HashMap::new() };
        let mut open = vec![(root, 0)];
        while let Some((schema, base)) = open.pop() {
            if arena.kind(schema) != NodeKind::Object {
                continue;
            }
            let members = arena.children(schema, meter).map_err(too_large)?;
            let members: Vec<(String, Id)> =
                members.members().map(|(name, value)| (arena.string(name).into_owned(), value)).collect();
            let base = resources.named(arena, schema, base, &members, draft)?;
            for (keyword, value) in &members {
                match (draft.holds(keyword), arena.kind(*value)) {
                    (Some(Holds::Schemas), NodeKind::Object) => open.push((*value, base)),
                    (Some(Holds::Schemas), NodeKind::Array) => {
                        let items = arena.children(*value, meter).map_err(too_large)?;
                        open.extend(items.items().map(|item| (item, base)));
                    }
                    (Some(Holds::Map), NodeKind::Object) => {
                        let named = arena.children(*value, meter).map_err(too_large)?;
                        open.extend(named.members().map(|(_, schema)| (schema, base)));
                    }
                    _ => {}
                }
            }
        }
        Ok(resources)
    }

    /// Adds the names of one schema object. Returns the index of the resource that contains the object.
    fn named(
        &mut self,
        arena: &Arena<'_>,
        schema: Id,
        base: usize,
        members: &[(String, Id)],
        draft: Draft,
    ) -> Scanned<usize> {
        let text = |keyword: &str| {
            let value = members.iter().find(|(name, _)| name == keyword).map(|(_, value)| *value)?;
            (arena.kind(value) == NodeKind::String).then(|| arena.string(value).into_owned())
        };
        if text("$schema").is_some_and(|named| Draft::named(&named) != Some(draft)) {
            return Err("a part of it is of another or an unknown draft".to_owned());
        }
        let is_reference = draft.ref_stands_alone() && members.iter().any(|(name, _)| name == "$ref");
        let id = text(draft.id_keyword()).filter(|_| !is_reference).unwrap_or_default();
        let (uri, fragment) = id.split_once('#').unwrap_or((&id, ""));
        let base = if uri.is_empty() { base } else { self.resource(arena, schema, base, uri)? };
        if !fragment.is_empty() {
            if !draft.ref_stands_alone() || fragment.starts_with('/') {
                return Err("an $id has a fragment".to_owned());
            }
            self.anchor(base, fragment, schema)?;
        }
        if draft >= Draft::D2019 {
            let anchors = ["$anchor", "$dynamicAnchor"].map(|keyword| text(keyword).unwrap_or_default());
            for anchor in anchors.iter().filter(|anchor| !anchor.is_empty()) {
                self.anchor(base, anchor, schema)?;
            }
        }
        Ok(base)
    }

    fn resource(&mut self, arena: &Arena<'_>, schema: Id, base: usize, uri: &str) -> Scanned<usize> {
        let above = self.list.get(base).map_or("", |resource| &resource.uri);
        let uri = uri::resolve(above, uri);
        let start = arena.offset(schema);
        if let Some(whole) = self.list.first_mut().filter(|whole| whole.start == start) {
            whole.uri = uri;
            return Ok(0);
        }
        if self.list.len() >= RESOURCES_MAX || self.list.iter().any(|resource| resource.uri == uri) {
            return Err("two parts of it have one $id, or too many have one".to_owned());
        }
        self.list.push(Resource { root: schema, start, end: arena.end(schema), uri });
        Ok(self.list.len() - 1)
    }

    fn anchor(&mut self, base: usize, name: &str, schema: Id) -> Scanned<()> {
        match self.anchors.insert((base, name.to_owned()), schema) {
            // one schema may have the same name by both keywords
            Some(before) if before != schema => Err("two parts of it have one anchor".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns whether parts of the schema have URIs of their own. The target of a dynamic reference may then
    /// depend on the path to it.
    pub(super) fn are_several(&self) -> bool {
        self.list.len() > 1
    }

    /// Resolves a reference at the offset `from` to its target.
    pub(super) fn find(
        &self,
        arena: &mut Arena<'_>,
        meter: &mut StepMeter,
        from: u32,
        reference: &str,
    ) -> Scanned<Id> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        // the innermost part begins last
        let around = |resource: &&(usize, &Resource)| resource.1.start <= from && from < resource.1.end;
        let around = self.list.iter().enumerate().filter(|resource| around(&resource));
        let (mut at, base) =
            around.max_by_key(|(_, resource)| resource.start).ok_or("a reference stands nowhere")?;
        if !uri.is_empty() {
            let uri = uri::resolve(&base.uri, uri);
            let named = self.list.iter().position(|resource| resource.uri == uri);
            at = named.ok_or("references to other documents are not followed")?;
        }
        let nowhere = || "a reference leads nowhere".to_owned();
        let root = self.list.get(at).map(|resource| resource.root).ok_or_else(nowhere)?;
        let fragment = uri::decoded(fragment).ok_or_else(nowhere)?;
        match fragment.strip_prefix('/') {
            None if fragment.is_empty() => Ok(root),
            None => self.anchors.get(&(at, fragment)).copied().ok_or_else(nowhere),
            Some(pointer) => pointer
                .split('/')
                .try_fold(root, |at, token| step(arena, meter, at, token)?.ok_or_else(nowhere)),
        }
    }
}

/// Follows one token of a JSON pointer; `None` if it has no target.
fn step(arena: &mut Arena<'_>, meter: &mut StepMeter, at: Id, token: &str) -> Scanned<Option<Id>> {
    let kind = arena.kind(at);
    if !matches!(kind, NodeKind::Array | NodeKind::Object) {
        return Ok(None);
    }
    let token = token.replace("~1", "/").replace("~0", "~");
    let children = arena.children(at, meter).map_err(too_large)?;
    if kind == NodeKind::Array {
        return Ok(token.parse().ok().and_then(|at| children.item(at)));
    }
    meter.spend(children.members_len() as u64).map_err(too_large)?;
    Ok(children.members().find(|(name, _)| arena.string(*name) == token).map(|(_, value)| value))
}

/// Returns the error text for a schema that takes too much work to compile.
pub(super) fn too_large(_: super::meter::Stop) -> String {
    "it takes too much work to compile".to_owned()
}
