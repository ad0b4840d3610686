//! Web sites to load: generated pages that a browser really loads in the tree that their
//! description says.
//!
//! A [`Site`] is a description (lab/sites/*.toml): hosts, and resources of which each is asked for
//! by another. Bodies are made from it and are the same in every run: documents and style sheets
//! that name their resources, scripts that insert the next ones, pictures and fonts that decode. A
//! [`SiteOrigin`] serves sites over HTTPS, HTTP/1.1 or HTTP/2 by ALPN, each host with a certificate
//! of its own by one [`Authority`].
//!
//! ```
//! use headstart_openers::site::Site;
//!
//! let news = Site::built_in("news").unwrap();
//! assert_eq!(news.url(), "https://www.daily.test/");
//! assert_eq!((news.resources().len(), news.shape().height), (104, 15));
//! ```

mod answers;
mod authority;
mod body;
mod content;
mod description;
mod http2;
mod origin;
mod script;
mod tls;

pub use authority::{Authority, HostIdentity};
pub use description::{
    Caching, LANGUAGES, Redirect, Site, SiteHost, SiteKind, SiteResource, SiteShape,
};
pub use origin::{SiteOptions, SiteOrigin};
