//! Settings of servers of web pages, and what was found on the pages.

use url::Url;

use super::Servers;
use crate::domain::id::TenantId;
use crate::domain::origin::Origin;
use crate::domain::server_kind::ServerKind;
use crate::domain::server_url::{ServerPlace, is_masked};
use crate::domain::tenant::Action;
use crate::domain::web_page::settings::{PAGES_MAX, PageSettings, PageSettingsPatch};
use crate::gateway::GatewayError;
use crate::gateway::credentials::FieldSecrets;
use crate::gateway::tenants::Caller;
use crate::store::{Server, ServerPatch};
use crate::upstream::Connection;

impl Servers {
    /// Refuses settings of web pages for a server of another kind.
    pub(super) fn no_pages(
        &self,
        kind: &str,
        pages: &PageSettingsPatch,
        secrets: Option<&FieldSecrets>,
    ) -> Result<(), GatewayError> {
        let Some(field) = pages.first().or(secrets.map(|_| "field_secrets")) else { return Ok(()) };
        // an unknown kind has an error of its own
        if ServerKind::parse(kind).is_none() {
            return Ok(());
        }
        Err(GatewayError::invalid(
            field,
            format!("a server of kind {kind} has no {field}: that is for web_page"),
        ))
    }

    /// Checks the settings of a new server of web pages.
    pub(super) fn new_pages(
        &self,
        given: &PageSettingsPatch,
        secrets: Option<&FieldSecrets>,
    ) -> Result<PageSettings, GatewayError> {
        if given.pages.is_none() {
            let message = "a server of kind web_page needs pages: a list of their URLs";
            return Err(GatewayError::invalid("pages", message));
        }
        let settings = self.checked(PageSettings::default().with(given.clone()))?;
        check_secrets(&settings, secrets)?;
        Ok(settings)
    }

    /// Notes new settings of web pages in the patch. A page at a place that the server did not have counts as another server,
    /// whose trust starts afresh; another query, and fewer pages, do not.
    pub(super) fn change_pages(
        &self,
        server: &Server,
        given: &PageSettingsPatch,
        secrets: Option<&FieldSecrets>,
        patch: &mut ServerPatch,
    ) -> Result<(), GatewayError> {
        if server.kind != ServerKind::WebPage {
            return self.no_pages(server.kind.as_str(), given, secrets);
        }
        let before = server.pages().unwrap_or_default();
        let settings = self.checked(before.clone().with(given.clone()))?;
        check_secrets(&settings, secrets)?;
        if given.first().is_none() {
            return Ok(());
        }
        let places = |settings: &PageSettings| -> Vec<Option<ServerPlace>> {
            settings.pages.iter().map(|page| ServerPlace::of(page)).collect()
        };
        let known = places(&before);
        patch.place_changed |= places(&settings).iter().any(|place| !known.contains(place));
        if settings.pages != before.pages {
            patch.url = settings.pages.first().cloned();
        }
        patch.pages = Some(settings);
        // the change must apply to the version that was compared
        patch.version = patch.version.or(Some(server.version));
        Ok(())
    }

    fn checked(&self, settings: PageSettings) -> Result<PageSettings, GatewayError> {
        if settings.pages.is_empty() || settings.pages.len() > PAGES_MAX {
            let message = format!("pages must be 1 to {PAGES_MAX} URLs; add another server for more");
            return Err(GatewayError::invalid("pages", message));
        }
        for (field, is_empty) in
            [("sources", settings.sources.is_empty()), ("methods", settings.methods.is_empty())]
        {
            if is_empty {
                return Err(GatewayError::invalid(field, format!("{field} must not be empty")));
            }
        }
        let mut pages = Vec::with_capacity(settings.pages.len());
        for page in &settings.pages {
            let page = self.checked_page(page)?;
            if pages.contains(&page) {
                return Err(GatewayError::invalid("pages", "pages has a URL twice"));
            }
            pages.push(page);
        }
        Ok(PageSettings { pages, ..settings })
    }

    /// Returns the URL of a page in the spelling in which it is fetched.
    fn checked_page(&self, page: &str) -> Result<String, GatewayError> {
        let refused = |message: &str| GatewayError::invalid("pages", format!("a page is refused: {message}"));
        if is_masked(page) {
            return Err(refused("its query is masked, since it is never shown; give the whole URL"));
        }
        let url = Url::parse(page).map_err(|_| refused("it is not a URL such as https://host/search"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(
                "it names a user or password; secrets for fields of a form are field_secrets",
            ));
        }
        // hosts are compared and checked as they are after the rules of URLs: 0x7f.1 is an address
        let page = String::from(url);
        let checked = self.egress.check_page_url(&page);
        checked.map_err(|error| GatewayError::invalid("pages", error.to_string()))?;
        Ok(page)
    }

    /// Returns what the last listing found on a server's pages, a JSON text; without a listing, no pages.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], also for a server of another kind,
    /// [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn page_report(&self, caller: &Caller, name: &str) -> Result<String, GatewayError> {
        let server = self.get_server(caller, name).await?;
        caller.authorise(Action::SeeServers)?;
        if server.kind != ServerKind::WebPage {
            return Err(GatewayError::NotFound("page report"));
        }
        let found = self.store.page_report(caller.tenant()?.id, server.id()).await;
        let found = found.map_err(|error| GatewayError::from_store(error, "server"))?;
        Ok(found.unwrap_or_else(|| r#"{"pages":[]}"#.to_owned()))
    }

    /// Stores what a listing found on the pages of a server, whether or not it worked. A failure costs the report alone.
    pub(super) async fn keep_page_report(&self, tenant: TenantId, server: &Server, connection: &Connection) {
        let Some(report) = connection.page_report() else { return };
        let kept = self.store.put_page_report(tenant, server.id(), server.version, &report).await;
        if let Err(error) = kept {
            tracing::warn!(%tenant, server = server.name, %error, "a page report was not stored");
        }
    }
}

/// Checks that pages whose forms get secrets are of one origin: a secret leaves towards one place only.
fn check_secrets(settings: &PageSettings, secrets: Option<&FieldSecrets>) -> Result<(), GatewayError> {
    if secrets.is_none_or(FieldSecrets::is_empty) {
        return Ok(());
    }
    let mut origins = settings.pages.iter().map(|page| Origin::of(page));
    let first = origins.next();
    if origins.all(|origin| Some(origin) == first) {
        return Ok(());
    }
    let message = "field_secrets need pages of one origin (scheme, host and port); add a server for each";
    Err(GatewayError::invalid("field_secrets", message))
}
