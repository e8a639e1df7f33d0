//! Settings of servers whose tools are forms of web pages.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::server_url::masked;
use crate::domain::text_enum::text_enum;

/// Most pages of one server.
pub const PAGES_MAX: usize = 10;

text_enum! {
    /// Source of the description of a form's tool.
    pub enum PageSource {
        /// Schema by its author (WAM, `wam-intent-tool-schema`).
        Wam = "wam",
        /// Attributes by its author (WebMCP, `toolname`).
        Webmcp = "webmcp",
        /// The form itself: its labels and controls.
        Forms = "forms",
    }
}

text_enum! {
    /// Searches that find the tools of a server's pages.
    pub enum Disclosure {
        /// Every search.
        Always = "always",
        /// Searches that name the host of a page, or ask for tools of sites.
        OnRequest = "on_request",
        /// Every search; one tool stands for all forms.
        Summarize = "summarize",
        /// None: the pages have a report and no tools.
        Ignore = "ignore",
    }
}

text_enum! {
    /// Condition under which tools of pages run.
    pub enum PageExecution {
        /// Never.
        Off = "off",
        /// With the permission of a person, for each call that posts.
        Ask = "ask",
        /// As the policy says.
        Policy = "policy",
    }
}

text_enum! {
    /// Lifetime of the cookies that a site sets.
    pub enum PageCookies {
        /// Until the end of the call.
        Ephemeral = "ephemeral",
        /// For further calls of the same caller.
        Kept = "kept",
    }
}

text_enum! {
    /// Method of a form that may become a tool.
    pub enum PageMethod {
        /// `get`
        Get = "get",
        /// `post`
        Post = "post",
    }
}

/// Settings of a server of web pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageSettings {
    /// URLs of the pages, at least one and at most [`PAGES_MAX`], each once.
    pub pages: Vec<String>,
    /// Sources of descriptions, at least one.
    pub sources: Vec<PageSource>,
    /// Searches that find the tools.
    pub disclosure: Disclosure,
    /// Condition under which the tools run.
    pub execute: PageExecution,
    /// True if a form needs the gates of a WAM policy to become a tool from any source but WebMCP and the form itself.
    pub require_wam_policy: bool,
    /// Methods of forms that may become tools, at least one.
    pub methods: Vec<PageMethod>,
    /// Lifetime of cookies.
    pub cookies: PageCookies,
    /// True if the tools are also on `/mcp/direct`.
    pub direct: bool,
}

/// Settings that a person gives; `None` leaves a setting as it is, or at its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSettingsPatch {
    /// URLs of the pages.
    pub pages: Option<Vec<String>>,
    /// Sources of descriptions.
    pub sources: Option<Vec<PageSource>>,
    /// Searches that find the tools.
    pub disclosure: Option<Disclosure>,
    /// Condition under which the tools run.
    pub execute: Option<PageExecution>,
    /// True if forms need the gates of a WAM policy.
    pub require_wam_policy: Option<bool>,
    /// Methods of forms that may become tools.
    pub methods: Option<Vec<PageMethod>>,
    /// Lifetime of cookies.
    pub cookies: Option<PageCookies>,
    /// True if the tools are also on `/mcp/direct`.
    pub direct: Option<bool>,
}

impl PageSettingsPatch {
    /// Returns the name of the first setting that is given; `None` without any.
    pub fn first(&self) -> Option<&'static str> {
        let given = [
            ("pages", self.pages.is_some()),
            ("sources", self.sources.is_some()),
            ("disclosure", self.disclosure.is_some()),
            ("execute", self.execute.is_some()),
            ("require_wam_policy", self.require_wam_policy.is_some()),
            ("methods", self.methods.is_some()),
            ("cookies", self.cookies.is_some()),
            ("direct", self.direct.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Returns whether the change may lead to other tools, so that the pages are to be read again.
    pub fn changes_tools(&self) -> bool {
        self.pages.is_some()
            || self.sources.is_some()
            || self.require_wam_policy.is_some()
            || self.methods.is_some()
            || self.cookies.is_some()
            || self.disclosure.is_some()
    }
}

impl Default for PageSettings {
    fn default() -> PageSettings {
        PageSettings {
            pages: Vec::new(),
            sources: vec![PageSource::Wam],
            disclosure: Disclosure::OnRequest,
            execute: PageExecution::Ask,
            require_wam_policy: true,
            methods: vec![PageMethod::Get, PageMethod::Post],
            cookies: PageCookies::Ephemeral,
            direct: false,
        }
    }
}

impl PageSettings {
    /// Returns the settings after a change.
    #[must_use]
    pub fn with(self, patch: PageSettingsPatch) -> PageSettings {
        PageSettings {
            pages: patch.pages.unwrap_or(self.pages),
            sources: patch.sources.unwrap_or(self.sources),
            disclosure: patch.disclosure.unwrap_or(self.disclosure),
            execute: patch.execute.unwrap_or(self.execute),
            require_wam_policy: patch.require_wam_policy.unwrap_or(self.require_wam_policy),
            methods: patch.methods.unwrap_or(self.methods),
            cookies: patch.cookies.unwrap_or(self.cookies),
            direct: patch.direct.unwrap_or(self.direct),
        }
    }

    /// Returns the URLs of the pages as definitions and people see them, in the order of [`PageSettings::pages`]: without their
    /// queries, which may be credentials. Of pages that differ in their query alone, each but the first has a number.
    pub fn shown_pages(&self) -> Vec<String> {
        let mut shown: Vec<String> = Vec::with_capacity(self.pages.len());
        for (at, page) in self.pages.iter().enumerate() {
            let url = masked(page);
            let earlier = self.pages.iter().take(at).filter(|other| masked(other) == url).count();
            shown.push(if earlier == 0 { url.into_owned() } else { format!("{url}#{}", earlier + 1) });
        }
        shown
    }

    /// Returns the URL of a page that [`PageSettings::shown_pages`] shows; `None` if the server has no such page.
    pub fn page_shown_as(&self, shown: &str) -> Option<&str> {
        let at = self.shown_pages().iter().position(|own| own == shown)?;
        self.pages.get(at).map(String::as_str)
    }

    /// Returns the settings in a row; `None` without pages. A word that this release does not know gets the strictest
    /// meaning.
    pub fn stored(value: &Value) -> Option<PageSettings> {
        let row = StoredSettings::deserialize(value).ok()?;
        if row.pages.is_empty() {
            return None;
        }
        Some(PageSettings {
            pages: row.pages,
            sources: row.sources.iter().filter_map(|word| PageSource::parse(word)).collect(),
            disclosure: Disclosure::parse(&row.disclosure).unwrap_or(Disclosure::Ignore),
            execute: PageExecution::parse(&row.execute).unwrap_or(PageExecution::Off),
            require_wam_policy: row.require_wam_policy,
            methods: row.methods.iter().filter_map(|word| PageMethod::parse(word)).collect(),
            cookies: PageCookies::parse(&row.cookies).unwrap_or(PageCookies::Ephemeral),
            direct: row.direct,
        })
    }
}

/// Settings as a row holds them.
#[derive(Deserialize)]
struct StoredSettings {
    pages: Vec<String>,
    sources: Vec<String>,
    disclosure: String,
    execute: String,
    require_wam_policy: bool,
    methods: Vec<String>,
    cookies: String,
    direct: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_are_found_by_what_is_shown_of_them() {
        let urls = [
            "https://a.example/x?k=s3cret",
            "https://a.example/x?k=other",
            "https://a.example/x",
            "https://b.example/x?k=1",
        ];
        let settings = PageSettings { pages: urls.map(str::to_owned).to_vec(), ..PageSettings::default() };
        let shown = settings.shown_pages();
        assert_eq!(
            shown[..3],
            ["https://a.example/x?[redacted]", "https://a.example/x?[redacted]#2", "https://a.example/x"]
        );
        for (shown, url) in shown.iter().zip(urls) {
            assert_eq!(settings.page_shown_as(shown), Some(url));
        }
        assert_eq!(settings.page_shown_as(urls[0]), None);
    }

    #[test]
    fn rows_are_read_back() {
        let settings =
            PageSettings { pages: vec!["https://a.example/".to_owned()], ..PageSettings::default() };
        let row = serde_json::to_value(&settings).unwrap();
        assert_eq!(PageSettings::stored(&row), Some(settings));
        assert_eq!(
            row,
            json!({"pages": ["https://a.example/"], "sources": ["wam"], "disclosure": "on_request",
                "execute": "ask", "require_wam_policy": true, "methods": ["get", "post"], "cookies": "ephemeral",
                "direct": false})
        );
    }

    #[test]
    fn unknown_words_get_the_strictest_meaning() {
        let row = json!({"pages": ["https://a.example/"], "sources": ["wam", "later"], "disclosure": "later",
            "execute": "later", "require_wam_policy": true, "methods": ["put", "get"], "cookies": "later",
            "direct": false, "later": 1});
        let read = PageSettings::stored(&row).unwrap();
        assert_eq!((read.disclosure, read.execute), (Disclosure::Ignore, PageExecution::Off));
        assert_eq!((read.sources, read.methods), (vec![PageSource::Wam], vec![PageMethod::Get]));
        assert_eq!(read.cookies, PageCookies::Ephemeral);
        for none in [json!({}), json!(null), json!({"pages": []})] {
            assert_eq!(PageSettings::stored(&none), None);
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let before = PageSettings { pages: vec!["https://a.example/".to_owned()], ..PageSettings::default() };
        let patch = PageSettingsPatch { execute: Some(PageExecution::Off), ..PageSettingsPatch::default() };
        assert_eq!(patch.first(), Some("execute"));
        assert!(!patch.changes_tools());
        let after = before.clone().with(patch);
        assert_eq!(after, PageSettings { execute: PageExecution::Off, ..before });
    }
}
