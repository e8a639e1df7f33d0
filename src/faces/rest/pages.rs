//! Settings of servers of web pages, in bodies and answers.

use serde::Serialize;

use super::fields::Fields;
use crate::domain::server_url::masked;
use crate::domain::web_page::settings::{
    Disclosure, PageCookies, PageExecution, PageMethod, PageSettingsPatch, PageSource,
};
use crate::gateway::{FieldSecrets, GatewayError, ServerView};

/// Names of the settings in bodies.
pub(super) const FIELDS: [&str; 9] = [
    "pages",
    "sources",
    "disclosure",
    "execute",
    "require_wam_policy",
    "methods",
    "cookies",
    "direct",
    "field_secrets",
];

/// Settings as they are shown.
#[derive(Serialize)]
pub(super) struct ShownPages<'a> {
    pages: Vec<String>,
    sources: Vec<PageSource>,
    disclosure: Disclosure,
    execute: PageExecution,
    require_wam_policy: bool,
    methods: Vec<PageMethod>,
    cookies: PageCookies,
    direct: bool,
    /// Names of the fields that have secrets.
    field_secrets: &'a [String],
}

/// Returns the settings of a server of web pages; `None` for another kind.
pub(super) fn shown(server: &ServerView) -> Option<ShownPages<'_>> {
    let settings = server.pages()?;
    Some(ShownPages {
        pages: settings.pages.iter().map(|page| masked(page).into_owned()).collect(),
        sources: settings.sources,
        disclosure: settings.disclosure,
        execute: settings.execute,
        require_wam_policy: settings.require_wam_policy,
        methods: settings.methods,
        cookies: settings.cookies,
        direct: settings.direct,
        field_secrets: &server.header_names,
    })
}

/// Reads the settings in a body.
pub(super) fn read(fields: &mut Fields) -> Result<PageSettingsPatch, GatewayError> {
    Ok(PageSettingsPatch {
        pages: fields.texts("pages")?,
        sources: fields.words("sources", &PageSource::WORDS, PageSource::parse)?,
        disclosure: fields.word("disclosure", &Disclosure::WORDS, Disclosure::parse)?,
        execute: fields.word("execute", &PageExecution::WORDS, PageExecution::parse)?,
        require_wam_policy: fields.flag("require_wam_policy")?,
        methods: fields.words("methods", &PageMethod::WORDS, PageMethod::parse)?,
        cookies: fields.word("cookies", &PageCookies::WORDS, PageCookies::parse)?,
        direct: fields.flag("direct")?,
    })
}

/// Reads the secrets for fields; `null` stands for none.
pub(super) fn read_secrets(fields: &mut Fields) -> Result<Option<FieldSecrets>, GatewayError> {
    let given = fields.nullable_object("field_secrets")?;
    given.map(|given| FieldSecrets::read(given.unwrap_or_default())).transpose()
}
