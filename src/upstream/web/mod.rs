//! Web pages: the guard that fetches them, and the exchange of servers whose tools are their forms.

mod body;
mod cookies;
mod execute;
mod guard;
mod inspector;
mod link;
mod reading;
mod robots;
mod submit;

pub use self::inspector::PageInspector;
pub(super) use self::link::PageLink;
