// Asks each URL with LIBRARY, HttpClient or URLConnection: Fetch LIBRARY URL... Prints a line for each: the status, or
// the error.

import java.net.HttpURLConnection;
import java.net.ProxySelector;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Fetch {
    public static void main(String[] arguments) {
        HttpClient client = HttpClient.newBuilder().proxy(ProxySelector.getDefault()).build();
        for (int i = 1; i < arguments.length; i++) {
            try {
                if (arguments[0].equals("HttpClient")) {
                    HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[i])).build();
                    System.out.println(client.send(request, HttpResponse.BodyHandlers.discarding()).statusCode());
                } else {
                    System.out.println(((HttpURLConnection) new URL(arguments[i]).openConnection()).getResponseCode());
                }
            } catch (Exception error) {
                System.out.println(String.valueOf(error).replace('\n', ' '));
            }
        }
        System.exit(0);
    }
}
