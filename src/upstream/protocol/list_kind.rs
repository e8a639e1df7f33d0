//! Kinds of lists: their methods, their form on the wire and their bounds.

/// Most tools of one server.
pub const TOOLS_MAX: usize = 10_000;
/// Most prompts of one server.
pub const PROMPTS_MAX: usize = 1000;
/// Most resources of one server.
pub const RESOURCES_MAX: usize = 5000;
/// Most templates of resources of one server.
pub const TEMPLATES_MAX: usize = 500;
/// Largest definition, in bytes.
pub const DEFINITION_BYTES_MAX: usize = 256 * 1024;
/// Largest list of tools, in bytes, all pages together.
pub const LIST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest list of anything else, in bytes, all pages together.
pub const OFFERS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest URI, or template of URIs, in bytes: it is a key in the database.
pub const URI_BYTES_MAX: usize = 2000;

/// Kind of list that a server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Templates of resources.
    Templates,
}

/// Method, form on the wire and bounds of a kind of list.
pub(in crate::upstream) struct ListForm {
    pub(in crate::upstream) method: &'static str,
    /// Member of a page that holds its entries.
    pub(in crate::upstream) member: &'static str,
    /// Member of an entry that names it.
    pub(in crate::upstream) key: &'static str,
    /// Name of one entry in messages; `nouns` is its plural.
    pub(in crate::upstream) noun: &'static str,
    pub(in crate::upstream) nouns: &'static str,
    pub(in crate::upstream) entries_max: usize,
    pub(in crate::upstream) key_bytes_max: usize,
    pub(in crate::upstream) bytes_max: usize,
}

static TOOLS: ListForm = ListForm {
    method: "tools/list",
    member: "tools",
    key: "name",
    noun: "tool",
    nouns: "tools",
    entries_max: TOOLS_MAX,
    key_bytes_max: NAME_BYTES_MAX,
    bytes_max: LIST_BYTES_MAX,
};

static PROMPTS: ListForm = ListForm {
    method: "prompts/list",
    member: "prompts",
    key: "name",
    noun: "prompt",
    nouns: "prompts",
    entries_max: PROMPTS_MAX,
    key_bytes_max: NAME_BYTES_MAX,
    bytes_max: OFFERS_BYTES_MAX,
};

static RESOURCES: ListForm = ListForm {
    method: "resources/list",
    member: "resources",
    key: "uri",
    noun: "resource",
    nouns: "resources",
    entries_max: RESOURCES_MAX,
    key_bytes_max: URI_BYTES_MAX,
    bytes_max: OFFERS_BYTES_MAX,
};

static TEMPLATES: ListForm = ListForm {
    method: "resources/templates/list",
    member: "resourceTemplates",
    key: "uriTemplate",
    noun: "template",
    nouns: "templates",
    entries_max: TEMPLATES_MAX,
    key_bytes_max: URI_BYTES_MAX,
    bytes_max: OFFERS_BYTES_MAX,
};

impl ListKind {
    /// All kinds but tools.
    pub const OTHERS: [ListKind; 3] = [ListKind::Prompts, ListKind::Resources, ListKind::Templates];

    pub(in crate::upstream) fn form(self) -> &'static ListForm {
        match self {
            Self::Tools => &TOOLS,
            Self::Prompts => &PROMPTS,
            Self::Resources => &RESOURCES,
            Self::Templates => &TEMPLATES,
        }
    }

    /// Returns whether the names of entries may be shown in a problem. URIs may hold passwords.
    pub(in crate::upstream) fn has_plain_names(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }
}
