//! Tree of a document, as the parser builds it.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use html5ever::interface::{ElementFlags, ExpandedName, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::{Attribute, QualName, ns};

use super::arena::{DomArena, DomContent, DomNodeId, Element};

/// DomNode as the parser knows it.
#[derive(Clone)]
pub(super) struct Handle {
    id: DomNodeId,
    name: Rc<QualName>,
    is_html_inside: bool,
}

/// DomBuilder of a document.
pub(super) struct DomBuilder {
    arena: RefCell<DomArena>,
    no_name: Rc<QualName>,
    attributes: Cell<usize>,
    moved: Cell<usize>,
}

impl DomBuilder {
    /// Creates a builder with an empty document.
    pub(super) fn new() -> DomBuilder {
        DomBuilder {
            arena: RefCell::new(DomArena::new()),
            no_name: Rc::new(QualName::new(None, ns!(), "".into())),
            attributes: Cell::new(0),
            moved: Cell::new(0),
        }
    }

    /// Returns the number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.arena.borrow().len()
    }

    /// Returns the number of attributes.
    pub(super) fn attributes(&self) -> usize {
        self.attributes.get()
    }

    /// Returns the number of nodes that were moved to another parent.
    pub(super) fn moved(&self) -> usize {
        self.moved.get()
    }

    fn nameless(&self, id: DomNodeId) -> Handle {
        Handle { id, name: Rc::clone(&self.no_name), is_html_inside: false }
    }

    fn add(&self, content: DomContent) -> Handle {
        let id = self.arena.borrow_mut().add(content);
        self.nameless(id)
    }
}

fn numbered(arena: &mut DomArena, attributes: Vec<Attribute>) -> Vec<(super::arena::NameId, Box<str>)> {
    attributes.into_iter().map(|own| (arena.number(&own.name.local), (&*own.value).into())).collect()
}

impl TreeSink for DomBuilder {
    type Handle = Handle;
    type Output = DomArena;
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) -> DomArena {
        self.arena.into_inner()
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.nameless(DomNodeId::ROOT)
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> ExpandedName<'a> {
        target.name.expanded()
    }

    fn create_element(&self, name: QualName, attributes: Vec<Attribute>, flags: ElementFlags) -> Handle {
        self.attributes.set(self.attributes.get() + attributes.len());
        let mut arena = self.arena.borrow_mut();
        let contents = flags.template.then(|| arena.add(DomContent::Other));
        let element = Element {
            name: arena.number(&name.local),
            is_html: name.ns == ns!(html),
            attributes: numbered(&mut arena, attributes),
            contents,
            form: None,
        };
        let id = arena.add(DomContent::Element(Box::new(element)));
        let is_html_inside = flags.mathml_annotation_xml_integration_point;
        Handle { id, name: Rc::new(name), is_html_inside }
    }

    fn create_comment(&self, _: StrTendril) -> Handle {
        self.add(DomContent::Other)
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> Handle {
        self.add(DomContent::Other)
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        let mut arena = self.arena.borrow_mut();
        match child {
            NodeOrText::AppendNode(node) => arena.append(parent.id, node.id),
            NodeOrText::AppendText(text) => {
                let last = arena.get(parent.id).and_then(|node| node.last);
                if !arena.extend(last, &text) {
                    let node = arena.add(DomContent::Text((*text).to_owned()));
                    arena.append(parent.id, node);
                }
            }
        }
    }

    fn append_based_on_parent_node(&self, element: &Handle, previous: &Handle, child: NodeOrText<Handle>) {
        let has_parent = self.arena.borrow().get(element.id).is_some_and(|node| node.parent.is_some());
        if has_parent {
            self.append_before_sibling(element, child);
        } else {
            self.append(previous, child);
        }
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    fn get_template_contents(&self, target: &Handle) -> Handle {
        let contents = self.arena.borrow().contents(target.id);
        self.nameless(contents.unwrap_or(target.id))
    }

    fn same_node(&self, one: &Handle, other: &Handle) -> bool {
        one.id == other.id
    }

    fn set_quirks_mode(&self, _: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &Handle, child: NodeOrText<Handle>) {
        let mut arena = self.arena.borrow_mut();
        match child {
            NodeOrText::AppendNode(node) => arena.insert_before(sibling.id, node.id),
            NodeOrText::AppendText(text) => {
                let previous = arena.get(sibling.id).and_then(|node| node.previous);
                if !arena.extend(previous, &text) {
                    let node = arena.add(DomContent::Text((*text).to_owned()));
                    arena.insert_before(sibling.id, node);
                }
            }
        }
    }

    fn add_attrs_if_missing(&self, target: &Handle, attributes: Vec<Attribute>) {
        self.attributes.set(self.attributes.get() + attributes.len());
        let mut arena = self.arena.borrow_mut();
        let more = numbered(&mut arena, attributes);
        let Some(element) = arena.element_mut(target.id) else { return };
        for (name, value) in more {
            if !element.attributes.iter().any(|(own, _)| *own == name) {
                element.attributes.push((name, value));
            }
        }
    }

    fn associate_with_form(&self, target: &Handle, form: &Handle, _: (&Handle, Option<&Handle>)) {
        if let Some(element) = self.arena.borrow_mut().element_mut(target.id) {
            element.form = Some(form.id);
        }
    }

    fn remove_from_parent(&self, target: &Handle) {
        self.arena.borrow_mut().detach(target.id);
    }

    fn reparent_children(&self, node: &Handle, parent: &Handle) {
        let mut arena = self.arena.borrow_mut();
        let mut moved = 0;
        while let Some(child) = arena.get(node.id).and_then(|node| node.first) {
            arena.append(parent.id, child);
            moved += 1;
        }
        self.moved.set(self.moved.get() + moved);
    }

    fn is_mathml_annotation_xml_integration_point(&self, target: &Handle) -> bool {
        target.is_html_inside
    }

    fn allow_declarative_shadow_roots(&self, _: &Handle) -> bool {
        false
    }
}
