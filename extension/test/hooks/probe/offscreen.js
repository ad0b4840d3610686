chrome.runtime.onMessage.addListener(({ frame, far, anonymous }) => {
  if (frame) {
    document.body.append(Object.assign(document.createElement("iframe"), { src: frame }));
    return;
  }
  for (const [href, crossOrigin] of [
    [far, null],
    [anonymous, "anonymous"],
  ]) {
    document.head.append(
      Object.assign(document.createElement("link"), { rel: "preconnect", href, crossOrigin }),
    );
  }
});
