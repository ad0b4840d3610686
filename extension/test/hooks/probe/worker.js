// Ways to open connections for a page: each is called when the request for the page's document
// begins.

const PAGE = "https://www.site.test/";
const [FAR, ANONYMOUS] = ["https://far.other.test", "https://anonymous.other.test"];
const VALUE = `<${FAR}>; rel=preconnect, <${ANONYMOUS}>; rel=preconnect; crossorigin`;

function links(far, anonymous) {
  for (const [href, crossOrigin] of [
    [far, null],
    [anonymous, "anonymous"],
  ]) {
    const link = Object.assign(document.createElement("link"), {
      rel: "preconnect",
      href,
      crossOrigin,
    });
    (document.head ?? document.documentElement).append(link);
  }
}

const inject = (tabId) =>
  chrome.scripting.executeScript({
    target: { tabId },
    injectImmediately: true,
    func: links,
    args: [FAR, ANONYMOUS],
  });

const field = (tabId, responseHeaders) =>
  chrome.declarativeNetRequest.updateSessionRules({
    addRules: [
      {
        id: 1,
        condition: {
          tabIds: [tabId],
          resourceTypes: ["main_frame"],
          urlFilter: `|${PAGE}|`,
          responseHeaders,
        },
        action: {
          type: "modifyHeaders",
          responseHeaders: [{ header: "link", operation: "append", value: VALUE }],
        },
      },
    ],
  });

const ways = {
  nothing: () => {},
  worker: () => {
    void fetch(FAR, { mode: "no-cors", credentials: "include" }).catch(() => {});
    void fetch(ANONYMOUS, { credentials: "omit" }).catch(() => {});
  },
  offscreen: () => chrome.runtime.sendMessage({ far: FAR, anonymous: ANONYMOUS }),
  "offscreen-frame": () => chrome.runtime.sendMessage({ frame: `${PAGE}tiny` }),
  "document-of-another-site": ({ tabId }) => inject(tabId),
  "document-of-the-same-site": ({ tabId }) => inject(tabId),
  "document-start": ({ tabId }) =>
    chrome.webNavigation.onCommitted.addListener(
      (of) => of.tabId === tabId && of.frameId === 0 && inject(tabId),
    ),
  "field-by-request": ({ tabId }) => field(tabId, undefined),
  "field-by-response": ({ tabId }) => field(tabId, [{ header: "content-type" }]),
  "early-hints": () => {},
};

let way = "nothing";

async function prepare(name) {
  way = name;
  const isOffscreen = name.startsWith("offscreen");
  if (isOffscreen)
    await chrome.offscreen.createDocument({
      url: "offscreen.html",
      reasons: ["DOM_PARSER"],
      justification: "a test",
    });
}

chrome.webRequest.onBeforeRequest.addListener((of) => void (of.url === PAGE && ways[way](of)), {
  urls: [PAGE],
  types: ["main_frame"],
});
